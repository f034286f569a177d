#include "bench/training/lock_step_run.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace crowdsurf::bench {
namespace {

constexpr uint64_t kFiniteEvery = 50;  // steps between two looks at whether it diverged

}  // namespace

LockStepResult RunLockStep(const LockStepOptions& options, Workload& workload) {
  simulator::BaselineOptions baseline = options.baseline;
  baseline.momentum = options.step.momentum;
  baseline.rate = [&](uint64_t step) { return options.step.schedule.RateAt(step); };
  TaskGradients gradients(workload, baseline.graph.nodes, options.step);
  const auto run = simulator::MakeBaseline<float>(options.kind, baseline, gradients);
  const auto judge = [&](size_t count) {
    std::vector<std::span<const float>> models;
    for (size_t i = 0; i < count; ++i)
      // Evenly chosen among the workers.
      models.push_back(run->model(static_cast<uint32_t>(i * run->workers() / count)));
    return workload.Judge(models);
  };
  LockStepResult result;
  for (uint64_t step = 1; step <= options.steps; ++step) {
    run->Step();
    if (options.look_every > 0 && step % options.look_every == 0)
      result.looks.push_back(
          {step, run->bytes(), judge(std::min<size_t>(options.judged, run->workers()))});
    // A run that diverged stays so: the rest of its steps would cost time.
    if (step % kFiniteEvery == 0 && !std::isfinite(run->model(0).front())) break;
  }
  result.score = judge(run->workers());
  result.bytes = run->bytes();
  return result;
}

}  // namespace crowdsurf::bench
