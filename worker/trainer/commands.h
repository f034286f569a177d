// Commands: what crowdsurf-trainer does once its options are read.
//
// RunCommand prints progress and results on stdout, errors on stderr, and returns the exit code:
// 0 done, 1 failed, 2 bad configuration (missing or empty text included), 128 + signal after an
// interrupt. Blocks until done; one thread.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "worker/trainer/options.h"

namespace crowdsurf::trainer {

struct TrainerEnvironment {
  std::string dir;     // CROWDSURF_DIR; empty: training alone
  std::string job;     // CROWDSURF_JOB
  std::string worker;  // CROWDSURF_WORKER
  // Called when training begins: before that (reading text, waiting for an agent) nothing looks at
  // *interrupt, and there is nothing to save.
  std::function<void()> on_start;
};

// *interrupt: 0, or the number of the signal that asks to end.
int RunCommand(const TrainerOptions& options, const TrainerEnvironment& environment,
               const volatile int* interrupt);

// Says on stderr why a command failed; the exit code: 2 where the configuration is at fault,
// else 1.
int ReportFailure(const Status& status);

// The two that read a model file (model_commands.cc).
int Evaluate(const TrainerOptions& options);
int MakeSample(const TrainerOptions& options);

}  // namespace crowdsurf::trainer
