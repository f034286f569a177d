#include "operator/core/observe/watch_pace.h"

namespace crowdsurf::controller {

Duration WatchPace::After(End end, Time begun, Time now) {
  if (end == End::kUnanswered) return kAwayBackoff.Delay(unanswered_++, rng_);
  unanswered_ = 0;
  if (end == End::kServed && !IsShort(begun, now)) return Duration();
  if (now - failed_at_ > kHealthy) failures_ = 0;
  const Duration wait = kBackoff.Delay(failures_++, rng_);
  // The wait itself is no time in which anything worked.
  failed_at_ = now + wait;
  return wait;
}

}  // namespace crowdsurf::controller
