// Training: parameters, optimizer and data order of one worker, and the loop over its steps.
//
// Training is the state and one step; RunTraining is the loop with pacing, evaluation, and a hook
// at every step boundary, which is where the trainer link plugs in (link_hook.h) or nothing does.
// The clock is a port so that pacing is tested without waiting. One thread owns all of it. Save and
// Load carry what a joiner cannot average: optimizer moments and the step count, which the schedule
// reads. Data order is not carried: every worker draws its own windows from (seed, worker, step at
// which it took over), so nobody repeats what another has seen.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/time.h"
#include "worker/trainer/optimizer.h"
#include "worker/trainer/schedule.h"
#include "worker/trainer/subnet_parameters.h"
#include "worker/trainer/task.h"

namespace crowdsurf::trainer {

struct TrainingOptions {
  uint64_t seed = 1;   // first parameters: equal at all workers of a job
  std::string worker;  // with the seed: this worker's data order
  OptimizerOptions optimizer;
  Schedule schedule;
  double clip = 1.0;  // most Euclidean length of a gradient; 0: as it is
};

class Training {
 public:
  // `task` must outlive it. Parameters start from the seed.
  Training(Task& task, const TrainingOptions& options);

  // One step: gradient, clip, optimizer. A gradient that is not finite changes nothing and is
  // counted.
  BatchResult Step(double lr_scale);

  // From here on Step makes a gradient and takes no step: other workers' gradients belong to it
  // (docs/gradients.md).
  void GatherOnly() { gathers_ = true; }
  std::span<const float> gradient() const { return gradient_; }  // of the last Step
  // Clip and optimizer, with that gradient in place of the last batch's.
  void Apply(std::span<const float> gradient, double lr_scale);

  // Trains only these units from here on (IST). Other units than before begin with an optimizer
  // without moments, and with text windows that have read nothing. Equal ones change nothing.
  // InvalidArgument: the model has no such units; then nothing changes.
  Status TrainUnits(const worker::IndexSets& sets);

  // Other first parameters and data order: the job's seed and our name in it. Pre: no step yet.
  void Restart(uint64_t seed, std::string worker);

  Task& task() { return task_; }
  Optimizer& optimizer() { return optimizer_; }
  std::span<float> parameters() { return parameters_; }
  std::span<const float> parameters() const { return parameters_; }
  uint64_t seed() const { return options_.seed; }  // in a job, the job's
  uint64_t step() const { return step_; }          // the job's: taken over by Load
  uint64_t not_finite_in_a_row() const { return not_finite_in_a_row_; }

  Bytes Save() const;
  // InvalidArgument, and nothing changed, when the bytes are not from a Training of the same task
  // and optimizer.
  Status Load(ByteView bytes);

 private:
  struct Target {
    std::span<float> parameters, gradient;
    Optimizer& optimizer;
  };
  void ForkData();
  BatchResult StepOf(const Target& target, double lr_scale);

  Task& task_;
  TrainingOptions options_;
  std::vector<float> parameters_, gradient_;
  Optimizer optimizer_;
  worker::IndexSets units_;                   // that are trained; none: the whole model
  std::unique_ptr<SubnetParameters> subnet_;  // with units_
  DataOrder data_{Rng(0)};
  uint64_t step_ = 0;
  bool gathers_ = false;
  uint64_t not_finite_in_a_row_ = 0;
};

// What a step boundary decided.
struct StepDecision {
  bool stop = false;      // leave the loop, successfully
  double lr_scale = 1.0;  // for the next step
};

// The seam to Crowdsurf. The default does nothing: training alone.
class StepHook {
 public:
  virtual ~StepHook() = default;
  // Before the first step; may replace seed, parameters and state.
  virtual StatusOr<StepDecision> Start(Training&) { return StepDecision{}; }
  // After every step; may change the parameters.
  virtual StatusOr<StepDecision> OnStep(Training&, const BatchResult&) { return StepDecision{}; }
  virtual void OnMetrics(std::span<const Metric>) {}
  // The loop has ended because this hook said stop.
  virtual void OnStopped() {}
};

class StepClock {
 public:
  virtual ~StepClock() = default;
  virtual Time Now() = 0;
  virtual void SleepUntil(Time) = 0;
};

struct LoopOptions {
  uint64_t steps = 0;  // own steps; 0: until the hook says stop or `duration` is over
  Duration duration = Duration::Infinite();
  Duration step_time;             // a step takes at least this long
  uint64_t evaluate_every = 200;  // steps between quick evaluations; 0: never
  uint64_t report_every = 100;    // steps between progress lines; 0: never
  Evaluation at_end = Evaluation::kFull;
  // Once, when the hook has let the loop begin: from here on *interrupt is looked at, every step.
  std::function<void()> on_start;
};

// Progress of the loop, for a line of text.
struct Progress {
  uint64_t step = 0;       // the job's count
  uint64_t own_steps = 0;  // of this process
  uint64_t samples = 0;    // of this process
  double loss = 0;         // mean since the last report
  double seconds = 0;      // since the loop started
};

class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  virtual void OnProgress(const Progress&) = 0;
  virtual void OnMetrics(const Progress&, std::span<const Metric>, Evaluation) = 0;
};

struct LoopResult {
  Progress progress;
  std::vector<Metric> metrics;  // the evaluation at the end
  bool interrupted = false;     // *interrupt was set
  bool stopped = false;         // the hook said stop
};

// What a loop is run with; all of it outlives the loop.
struct LoopCompany {
  StepHook& hook;
  StepClock& clock;
  ProgressSink& sink;
  const volatile int* interrupt;  // not 0: end now
};

// Runs until `steps`, `duration`, the hook or *interrupt end it, then evaluates (not after an
// interrupt). Errors: the hook's; DataLoss after ten gradients in a row that are not
// finite.
StatusOr<LoopResult> RunTraining(Training& training, const LoopOptions& options,
                                 const LoopCompany& with);

}  // namespace crowdsurf::trainer
