#include "operator/core/decide/outages.h"

#include <algorithm>

namespace crowdsurf::controller {

void Outages::Answered(Time now) {
  // After a short silence kubelets come back at once: they have not backed off yet.
  if (!silent_since_.unset() && now - silent_since_ >= kShortest) ended_ = now;
  silent_since_ = Time();
  answered_ = now;
}

void Outages::Unanswered(Time asked) {
  if (asked < answered_) return;  // others were answered while it waited
  if (silent_since_.unset()) silent_since_ = asked;
}

Duration Outages::Lingers(Time now) const {
  // While the server is away, kubelets still have their whole time ahead of them.
  if (!silent_since_.unset() && now - silent_since_ >= kShortest) return kKubeletsReturn;
  if (ended_.unset()) return Duration();
  return std::max(Duration(), ended_ + kKubeletsReturn - now);
}

}  // namespace crowdsurf::controller
