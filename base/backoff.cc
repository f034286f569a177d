#include "base/backoff.h"

#include <algorithm>
#include <cmath>

namespace crowdsurf {

Duration Backoff::Delay(int attempt, Rng& rng) const {
  const double full = initial.seconds() * std::pow(factor, std::max(attempt, 0));
  // Also where the power has overflowed to infinity, after a thousand failures.
  const double capped = std::min(full, most.seconds());
  return Seconds(capped * (1.0 - jitter * rng.UniformDouble()));
}

}  // namespace crowdsurf
