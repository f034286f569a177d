// LockStepTimes: how long the steps of a method in lock step would take on machines and links like
// those of the peers in virtual time.
//
// Only what a method cannot avoid is counted, in its favour: computing, the bytes of its messages,
// one drawn delay a message, and waiting for what its step needs. Deterministic under the seed.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace crowdsurf::bench {

struct Surroundings {
  std::vector<double> step_seconds;  // of each worker
  double vector_seconds = 0;         // that a model's bytes take on a link
  double min_delay = 0;              // of a message
  double mean_extra_delay = 0;       // exponential
};

// What a death costs a job that starts again from its last checkpoint.
struct Restarts {
  std::vector<double> deaths;     // seconds, ascending
  double restart_seconds = 0;     // until all train again
  double checkpoint_seconds = 0;  // between two checkpoints
};

// Seconds at which step k of `steps` is done by all. A step: the slowest worker, the slowest of n
// delays, and a ring's 2 (n - 1) / n of the bytes.
std::vector<double> AllReduceTimes(const Surroundings& around, const Restarts& restarts,
                                   uint64_t steps, Rng rng);

// Seconds at which step k is done, the mean over workers: each waits for one message of this step
// from rank - 2^k in turn, `messages` times. Source: Assran et al. 2019 (arXiv 1811.10792) Alg. 1.
std::vector<double> PushSumTimes(const Surroundings& around, uint32_t messages, uint64_t steps,
                                 Rng rng);

}  // namespace crowdsurf::bench
