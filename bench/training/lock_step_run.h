// LockStepRun: a training job of n workers by a method that we do not ship, all in step.
//
// Same tasks, first parameters, batches and schedule as peers have (task_model.h). Deterministic
// under the seeds. Owner: the caller; single sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/training/task_model.h"
#include "bench/training/workload.h"
#include "simulator/baselines/baseline.h"

namespace crowdsurf::bench {

struct LockStepOptions {
  simulator::BaselineKind kind = simulator::BaselineKind::kDPsgd;
  simulator::BaselineOptions baseline;  // its rate is set here
  StepOptions step;
  uint64_t steps = 1000;
  uint64_t look_every = 0;  // steps between two looks; 0: at the end only
  size_t judged = 16;       // models at a look, evenly chosen; all of them at the end
};

struct LockStepLook {
  uint64_t steps = 0;
  double bytes = 0;  // sent by all workers
  Score score;
};
struct LockStepResult {
  Score score;  // of the end
  double bytes = 0;
  std::vector<LockStepLook> looks;
};

// Ends early where a model is not finite.
LockStepResult RunLockStep(const LockStepOptions& options, Workload& workload);

}  // namespace crowdsurf::bench
