// JobClock: how long the job has trained, as far as this peer knows; for `target.seconds`.
//
// Owner: Membership, single sequence. It starts with the first view (from a checkpoint: with the
// seconds written there), travels with every view that is told, and each peer goes on counting by
// its own steady clock. Of two figures the larger stands, so a new steward goes on where the old
// one was, to within a message's delay; time in which nobody trained is not counted. O(1).
#pragma once

#include <algorithm>

#include "base/time.h"

namespace crowdsurf::worker {

class JobClock {
 public:
  // Somebody knows that the job has trained for `seconds` (finite, >= 0) now.
  void Learn(Time now, double seconds) {
    seconds_ = std::max(seconds, this->seconds(now));
    at_ = now;
  }
  // 0 before the first Learn.
  double seconds(Time now) const {
    return at_.unset() ? 0 : seconds_ + std::max(0.0, (now - at_).seconds());
  }
  // When the job will have trained for `seconds`; infinite before the first Learn.
  Time When(double seconds) const {
    return at_.unset() ? Time::Infinite() : at_ + Seconds(seconds - seconds_);
  }

 private:
  Time at_;
  double seconds_ = 0;  // at `at_`
};

}  // namespace crowdsurf::worker
