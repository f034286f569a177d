// Tensor payload: the bytes of a frame that has arrived, where they lie, and what was found in
// them.
//
// A value; moved from an I/O thread to the host's.
#pragma once

#include <memory>

#include "base/bytes.h"
#include "worker/core/vector/wire_format.h"
#include "worker/edge/tensor/result_slots.h"

namespace crowdsurf::worker {

struct TensorPayload {
  Bytes own;
  std::shared_ptr<ResultSlots::Landing> landing =
      nullptr;                            // has the bytes instead, where there is one
  Float32Look look = Float32Look::kNone;  // at an input or a result, while it was in the cache
  ByteView bytes() const { return landing != nullptr ? landing->bytes() : ByteView(own); }
};

}  // namespace crowdsurf::worker
