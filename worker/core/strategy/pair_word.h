// PairWord: what the two ends of a pair exchange say to each other (pair_exchange.h).
//
// averaging_messages.h wraps it with the view. A value; any thread.
#pragma once

#include <cstdint>

namespace crowdsurf::worker {

struct PairWord {
  enum class Kind : uint8_t { kPropose, kAccept, kBusy, kCancel } kind = Kind::kPropose;
  uint64_t number = 0;            // of the exchange, chosen by the proposer
  uint64_t step_nanoseconds = 0;  // a step of the sender's trainer; 0: not known
  bool operator==(const PairWord&) const = default;
};

}  // namespace crowdsurf::worker
