// Instants of a test, and a process whose timers fire meanwhile.
//
// For tests of RoundTimes and of RoundPacer, which have no clock: times are in milliseconds.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "worker/core/round/round_pacer.h"

namespace crowdsurf::worker {

inline Time At(int64_t milliseconds) {
  return Time::FromNanoseconds(1'000'000 * (1000 + milliseconds));
}

// Its timer fires each beat from `from` to `to`, in milliseconds.
inline void StayAwake(RoundTimes& times, int64_t from, int64_t to) {
  for (int64_t beat = from; beat < to; beat += 25) times.OnAwake(At(beat));
  times.OnAwake(At(to));
}

}  // namespace crowdsurf::worker
