// EdgeWord: what the two ends of an edge of PowerGossip say to each other (power_exchange.h).
//
// averaging_messages.h wraps it with the view. A value; any thread.
#pragma once

#include <cstdint>

namespace crowdsurf::worker {

struct EdgeWord {
  enum class Kind : uint8_t {
    kMissing,  // your frame of `step` is not here
    kNotYet,   // that is still to come
    kCut,      // this edge is down for the rest of the view
  } kind = Kind::kMissing;
  uint64_t step = 0;
  bool operator==(const EdgeWord&) const = default;
};

}  // namespace crowdsurf::worker
