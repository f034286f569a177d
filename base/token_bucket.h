// TokenBucket: how often something may be done: `burst` times at once, then `per_second`.
//
// Pure: the caller has the clock. Single sequence.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace crowdsurf {

class TokenBucket {
 public:
  TokenBucket(double burst, double per_second)
      : burst_(burst), per_second_(per_second), tokens_(burst) {}

  // False: not now. A clock that goes back gives nothing.
  bool Take(Time now) {
    Fill(now);
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }
  // As new: whoever forgets it then gives nothing away.
  bool full(Time now) const {
    return tokens_ + std::max(Duration(), now - at_).seconds() * per_second_ >= burst_;
  }

 private:
  void Fill(Time now) {
    if (now > at_) tokens_ = std::min(burst_, tokens_ + (now - at_).seconds() * per_second_);
    at_ = std::max(at_, now);
  }

  double burst_, per_second_, tokens_;
  Time at_;
};

}  // namespace crowdsurf
