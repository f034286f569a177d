#include "operator/core/outages.h"

namespace crowdsurf::controller {

void Outages::Answered(Time now) {
  if (!silent_since_.unset() && now - silent_since_ >= kShortest) ended_ = now;
  silent_since_ = Time();
  answered_ = now;
}

void Outages::Unanswered(Time asked) {
  if (asked < answered_) return;  // others were answered while it waited
  if (silent_since_.unset()) silent_since_ = asked;
}

bool Outages::Linger(Time now) const {
  if (!silent_since_.unset() && now - silent_since_ >= kShortest) return true;
  return !ended_.unset() && now - ended_ < kKubeletsReturn;
}

}  // namespace crowdsurf::controller
