// Backoff: an exponential, jittered retry schedule as a pure function.
//
// Delay(attempt) = min(initial * factor^attempt, most), times a uniform draw from [1 - jitter, 1].
// Jitter keeps a crowd that failed together from retrying together. Any thread.
#pragma once

#include "base/rng.h"
#include "base/time.h"

namespace crowdsurf {

struct Backoff {
  Duration initial;     // of attempt 0
  Duration most;        // cap, before jitter
  double factor = 2.0;  // >= 1
  double jitter = 0.5;  // share of the delay that is random, 0..1

  // attempt: failures so far, >= 0.
  Duration Delay(int attempt, Rng& rng) const;
};

}  // namespace crowdsurf
