// PairWord: what the two ends of a pair exchange say beside their models (pair_exchange.h).
//
// averaging_messages.h wraps it with the view. A value; any thread.
#pragma once

#include <cstdint>

namespace crowdsurf::worker {

struct PairWord {
  // kWait: there is no room for your model, kGo follows. kGo: there is, send it again. kDone: your
  // whole reply is here. kGone: that exchange is over here, and nothing came of it.
  enum class Kind : uint8_t { kWait, kGo, kDone, kGone } kind = Kind::kGo;
  uint64_t number = 0;  // of the exchange, chosen by the end that began it
  bool operator==(const PairWord&) const = default;
};

}  // namespace crowdsurf::worker
