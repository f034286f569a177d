// ClockWarning: when it is worth a line in the log that this machine's clock is off.
//
// It says so once above a second, and again when the distance has changed by a second or is small
// again. Not more often than every ten seconds, since the peers' clocks can be set at will. Owned
// by DhtService; single sequence.
#pragma once

#include <optional>

#include "base/time.h"

namespace crowdsurf::dht {

class ClockWarning {
 public:
  static constexpr Duration kLarge = Seconds(1);
  static constexpr Duration kLeastPause = Seconds(10);

  // The distance to be said now; none: there is nothing new.
  std::optional<Duration> Say(Time now, Duration offset) {
    const bool now_large = Size(offset) >= kLarge;
    const bool news = now_large ? Size(offset - said_) >= kLarge : large();
    if (!news || (!said_at_.unset() && now - said_at_ < kLeastPause)) return std::nullopt;
    said_ = offset;
    said_at_ = now;
    return offset;
  }
  // Is the distance that was said last a large one?
  bool large() const { return Size(said_) >= kLarge; }

 private:
  static Duration Size(Duration d) { return d < Duration() ? Duration() - d : d; }

  Duration said_;
  Time said_at_;
};

}  // namespace crowdsurf::dht
