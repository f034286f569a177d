// ClockWarning: when it is worth a line in the log that this machine's clock is off.
//
// It says so once above a second that lasts, and again when the distance has changed by a second or
// is small again. A node that knows one other clock lies between the two until it knows more. Not
// more often than every ten seconds, since the peers' clocks can be set at will. Owned by
// DhtService; single sequence.
#pragma once

#include <optional>

#include "base/time.h"

namespace crowdsurf::dht {

class ClockWarning {
 public:
  static constexpr Duration kLarge = Seconds(1);
  static constexpr Duration kLeastPause = Seconds(10);
  static constexpr Duration kLasts = Seconds(3);  // a newcomer knows its neighbors' clocks by then

  // The distance to be said now; none: there is nothing new.
  std::optional<Duration> Say(Time now, Duration offset) {
    const bool now_large = Size(offset) >= kLarge;
    if (!now_large) large_since_ = Time();
    if (now_large && large_since_.unset()) large_since_ = now;
    if (now_large && !large() && now - large_since_ < kLasts) return std::nullopt;
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
  Time large_since_;  // unset: it is small
};

}  // namespace crowdsurf::dht
