#include "bench/papers/subnet_trial.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>

#include "base/rng.h"
#include "bench/training/curve.h"
#include "bench/training/lock_step_run.h"
#include "bench/training/lock_step_times.h"
#include "bench/training/peers_run.h"

namespace crowdsurf::bench {
namespace {

constexpr double kSubnetFlops = 1e9;
constexpr int kSubnetLooks = 40;
// So that a chunk takes milliseconds on a thin link, and its sender is not taken for dead.
constexpr size_t kSubnetChunkElements = 8192;
constexpr uint64_t kSubnetWarmUp = 20;  // steps

}  // namespace

std::vector<double> SubnetRates() {
  std::vector<double> rates;
  for (double rate = 0.025; rate < 2; rate *= 2) rates.push_back(rate);
  return rates;
}

std::string SubnetTrial::key() const {
  return absl::StrCat("ist/", name, "/n", workers, "/hidden ", absl::StrJoin(hidden, " "),
                      "/interval ", interval, "/rate ", rate, "/seed ", seed, "/steps ", steps,
                      "/bytes ", bytes_per_second);
}

RunSpec SubnetTrial::Spec() const {
  return {key(), [trial = *this] { return trial.Run(); }};
}

double SubnetTrial::LeastSeconds(double step_seconds, double vector_bytes) const {
  const double n = workers;
  // A sub-network has at least a share of 1 / n in all that one hidden layer touches.
  double step = subnets ? step_seconds / n : step_seconds;
  // A ring's bytes, or half of them.
  if (bytes_per_second > 0)
    step += (subnets ? 1 : 2) * (n - 1) / n * vector_bytes / bytes_per_second / interval;
  return step * static_cast<double>(steps);
}

StepOptions SubnetTrial::Steps() const {
  return {.schedule = {.kind = trainer::ScheduleKind::kConstant,
                       .rate = rate,
                       .warmup_steps = kSubnetWarmUp},
          .momentum = 0,
          .seed = seed};
}

DigitsWorkload SubnetTrial::MakeWorkload() const {
  return DigitsWorkload(
      {.workers = workers, .alpha = 0, .hidden = hidden, .examples = kManyExamples, .seed = seed});
}

Outcome SubnetTrial::RunAllReduce() const {
  DigitsWorkload workload = MakeWorkload();
  LockStepOptions options{simulator::BaselineKind::kAllReduce, {}, Steps(), steps};
  options.baseline.graph.nodes = workers;
  options.look_every = std::max<uint64_t>(1, steps / kSubnetLooks);
  options.judged = 1;
  const simulator::LinkOptions links;
  const double bytes = 4.0 * static_cast<double>(workload.TaskOf(0)->table().elements());
  const Surroundings around{
      .step_seconds = std::vector<double>(workers, workload.flops_a_step() / kSubnetFlops),
      .vector_seconds = bytes_per_second > 0 ? bytes / bytes_per_second : 0,
      .min_delay = links.min_delay.seconds(),
      .mean_extra_delay = links.mean_extra_delay.seconds()};
  const std::vector<double> times = AllReduceTimes(around, {}, steps, Rng(seed).Fork("delays"));
  Curve curve;
  for (const LockStepLook& look : RunLockStep(options, workload).looks)
    curve.Add({times[look.steps - 1], look.bytes, look.score});
  return curve.outcome();
}

Outcome SubnetTrial::RunOfPeers() const {
  DigitsWorkload workload = MakeWorkload();
  worker::AveragingConfig config = simulator::DescentAveraging(
      subnets ? worker::StrategyKind::kIst : worker::StrategyKind::kAllReduce,
      worker::GraphKind::kComplete);
  config.interval = interval;
  PeersOptions peers;
  peers.descent = QuietDescent(config, static_cast<int>(workers), seed);
  peers.descent.links.bytes_per_second = bytes_per_second;
  peers.step = Steps();
  peers.steps = steps;
  peers.flops_per_second = kSubnetFlops;
  peers.chunk_elements = kSubnetChunkElements;
  const double vector_bytes = 4.0 * static_cast<double>(workload.TaskOf(0)->table().elements());
  const double least = LeastSeconds(workload.flops_a_step() / kSubnetFlops, vector_bytes);
  peers.descent.look_every = Seconds(least / kSubnetLooks);
  // The run ends with its steps.
  peers.descent.end = Seconds(1000 * least);
  peers.judged = 1;
  peers.judge_averages = true;
  Curve curve;
  for (const Glance& glance : RunPeers(peers, workload))
    curve.Add({glance.seconds, glance.bytes, glance.score});
  return curve.outcome();
}

}  // namespace crowdsurf::bench
