#include "bench/papers/speed_papers.h"

#include <ctime>

#include "base/check.h"
#include "bench/papers/power_papers.h"
#include "bench/training/peers_run.h"

namespace crowdsurf::bench {
namespace {

constexpr uint32_t kSpeedWorkers = 64;
constexpr uint64_t kSpeedSteps = 2000;
constexpr double kSpeedStepSeconds = 0.02;  // of virtual time
constexpr double kSpeedRate = 0.05;

double CpuSecondsOf(Workload& workload, uint64_t steps, uint64_t seed) {
  // CPU time, so that a busy machine changes little.
  const std::clock_t start = std::clock();
  PeersOptions peers;
  peers.descent = QuietDescent(simulator::DescentAveraging(worker::StrategyKind::kRelaySum,
                                                           worker::GraphKind::kDoubleBinaryTree),
                               kSpeedWorkers, seed);
  const double nominal = kSpeedStepSeconds * static_cast<double>(steps);
  peers.descent.look_every = Seconds(nominal / 4);
  peers.descent.end = Seconds(4 * nominal);
  peers.step = {.schedule = ScheduleOf(kSpeedRate, steps), .seed = seed};
  peers.steps = steps;
  peers.flops_per_second = workload.flops_a_step() / kSpeedStepSeconds;
  peers.judged = 1;
  const Glance end = RunPeers(peers, workload).back();
  // All have taken all steps, or the time means nothing.
  CHECK_EQ(end.steps, static_cast<double>(kSpeedWorkers * steps));
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

}  // namespace

void SpeedPapers(const PapersOptions& options, Runs&, Figures& out) {
  // A tenth of the steps, times ten.
  const uint64_t share = options.length == Length::kShort ? 10 : 1;
  const auto seconds = [&](Workload& workload) {
    return static_cast<double>(share) * CpuSecondsOf(workload, kSpeedSteps / share, options.seed);
  };
  DigitsWorkload digits({.workers = kSpeedWorkers});
  out.Add("papers.seconds.mlp", seconds(digits), "CPU, 64 peers x 2,000 steps; bound 300");
  if (options.text.empty()) return;
  TextWorkload text(trainer::MakeCorpus(options.text, kSplitSeed).value());
  out.Add("papers.seconds.gru", seconds(text), "the same; bound 300");
}

}  // namespace crowdsurf::bench
