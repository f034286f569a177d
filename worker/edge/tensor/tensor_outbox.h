// Tensor outbox: the frames that wait for one peer, bounded in bytes.
//
// The host thread pushes, the I/O thread looks at the front, writes and pops. It outlives a
// connection: after a reconnect the front frame is sent again from its first byte. A refused push
// is remembered, and the pop that brings the queue below half of the bound says so, so that the
// host can go on. Thread-safe.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "worker/core/reduce/reducer.h"
#include "worker/edge/tensor/tensor_frame.h"

namespace crowdsurf::worker {

struct OutFrame {
  TensorHeaderBytes header;
  SharedBytes payload;  // nullptr: none
  size_t size() const { return kTensorHeaderBytes + (payload ? payload->size() : 0); }
};

class TensorOutbox {
 public:
  enum class Pushed : uint8_t { kQueued, kQueuedFirst, kFull, kClosed };

  explicit TensorOutbox(size_t max_bytes) : max_bytes_(max_bytes) {}

  // kQueuedFirst: the queue was empty, the I/O thread must be woken. A frame is taken while the
  // queue is below its bound, so a single frame always fits.
  Pushed Push(OutFrame frame);
  // The first frame, without taking it; nullopt: there is none.
  std::optional<OutFrame> Front() const;
  // The first frames, at most `most`, without taking them.
  std::vector<OutFrame> First(size_t most) const;
  // Takes the first frame, which was sent. True when a refused pusher may go on now.
  bool Pop();
  bool empty() const;
  // Drops everything and refuses from now on; the number of frames dropped.
  size_t Close();

 private:
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::deque<OutFrame> frames_;
  size_t bytes_ = 0;
  bool refused_ = false;
  bool closed_ = false;
};

}  // namespace crowdsurf::worker
