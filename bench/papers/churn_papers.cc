#include "bench/papers/churn_papers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/training/peers_run.h"
#include "bench/training/spot_trace.h"
#include "bench/training/tuning.h"

namespace crowdsurf::bench {
namespace {

using worker::GraphKind;
using worker::StrategyKind;

constexpr uint64_t kChurnTuningSeed = 3000;  // apart from the fresh ones
constexpr double kTraceFaster = 10;
constexpr double kChurnStepSeconds = 0.5;
constexpr double kChurnInterval = 10;  // steps between two averagings of those that average

struct ChurnContender {
  const char* name;
  StrategyKind strategy;
  GraphKind graph;
};
constexpr ChurnContender kChurnContenders[] = {
    {"Moshpit", StrategyKind::kMoshpit, GraphKind::kComplete},
    {"AllReduce", StrategyKind::kAllReduce, GraphKind::kComplete},
    {"Gossip", StrategyKind::kGossip, GraphKind::kExponential},
    {"A2CiD2", StrategyKind::kA2CiD2, GraphKind::kRing},
    {"RelaySum", StrategyKind::kRelaySum, GraphKind::kDoubleBinaryTree},
    {"PowerGossip", StrategyKind::kPowerGossip, GraphKind::kRing},
    {"IST", StrategyKind::kIst, GraphKind::kComplete}};

worker::AveragingConfig ChurnConfig(const ChurnContender& contender) {
  worker::AveragingConfig config = simulator::DescentAveraging(contender.strategy, contender.graph);
  config.overlap = worker::Overlap::kDelayed;
  // AllReduce has one group, Moshpit groups of 16.
  config.group_size = 16;
  if (!worker::IsOnGraph(contender.strategy)) config.interval = kChurnInterval;
  if (contender.strategy == StrategyKind::kAllReduce) config.group_size = 64;
  return config;
}

struct ChurnTrial {
  ChurnContender contender;
  double rate = 0;
  uint64_t seed = 0;
  double seconds = 0;
  bool churn = false;
};

class ChurnTable {
 public:
  ChurnTable(const PapersOptions& options, const SpotTrace& trace, Runs& runs, Figures& out)
      : options_(options), trace_(trace), runs_(runs), out_(out) {
    const bool brief = options.length == Length::kShort;
    // Short: its first two minutes, of 68.
    seconds_ = trace.length.seconds() / (brief ? 32 : 1);
    seeds_ = brief ? 3 : 5;
  }

  void Fill() {
    for (const ChurnContender& contender : kChurnContenders) {
      const double rate = TuneContender(contender);
      const std::string key = absl::StrCat("churn.", contender.name);
      std::vector<double> ratios, steps;
      double worst = 0;
      for (uint64_t seed = options_.seed; seed < options_.seed + seeds_; ++seed) {
        const RunSpec with = SpecOf({contender, rate, seed, seconds_, true});
        const RunSpec without = SpecOf({contender, rate, seed, seconds_, false});
        runs_.Do({with, without});
        // Paired by seed: both runs have the same data, models and rate.
        ratios.push_back(runs_.value(with.key, "loss") / runs_.value(without.key, "loss"));
        steps.push_back(runs_.value(with.key, "steps") / runs_.value(without.key, "steps"));
        worst = std::max(worst, runs_.value(with.key, "worst"));
      }
      const Estimate ratio = EstimateOf(ratios);
      out_.Add(key, 100 * (ratio.mean - 1),
               absl::StrCat("percent over its loss without churn, +- ", 100 * ratio.interval,
                            "; bound 5"));
      out_.Add(key + ".interval", 100 * ratio.interval, "");
      out_.Add(key + ".steps", EstimateOf(steps).mean, "of all workers, over those without churn");
      out_.Add(key + ".worst", worst, "loss of the worst worker of all seeds");
    }
  }

 private:
  RunSpec SpecOf(const ChurnTrial& trial) {
    // The key has all that the outcome depends on, the trace too.
    return {absl::StrCat("churn/", trial.contender.name, "/rate ", trial.rate, "/seed ", trial.seed,
                         "/seconds ", trial.seconds, "/trace ", BriefOf(options_.trace),
                         trial.churn ? "" : " without churn"),
            [this, trial] { return Run(trial); }};
  }

  Outcome Run(const ChurnTrial& trial) {
    const bool subnets = trial.contender.strategy == StrategyKind::kIst;
    // Everybody has all examples, so that deaths take no data with them. The 24 workers of IST need
    // units enough for each.
    DigitsOptions digits{.alpha = 0, .seed = trial.seed};
    if (subnets) digits.hidden = {512};
    DigitsWorkload workload(digits);
    PeersOptions peers;
    // Without churn: as many workers as the trace has on average.
    const auto members = static_cast<int>(std::lround(trace_.mean_living));
    peers.descent = QuietDescent(ChurnConfig(trial.contender), members, trial.seed);
    if (trial.churn) {
      peers.descent.members = trace_.members;
      for (const Duration join : trace_.joins)
        // Of a part of the trace the part that lies in it.
        if (join.seconds() < trial.seconds) peers.descent.joins.push_back(join);
      for (size_t i = 0; i < trace_.deaths.size(); ++i) {
        if (trace_.deaths[i].seconds() >= trial.seconds) continue;
        peers.descent.deaths.push_back(trace_.deaths[i]);
        peers.descent.victims.push_back(trace_.victims[i]);
      }
    }
    peers.descent.end = Seconds(trial.seconds);
    peers.descent.look_every = peers.descent.end;
    const auto steps = static_cast<uint64_t>(trial.seconds / kChurnStepSeconds);
    peers.step = {.schedule = ScheduleOf(trial.rate, steps), .seed = trial.seed};
    if (subnets) peers.step.momentum = 0;  // as in ist.* (subnet_trial.cc)
    peers.flops_per_second = workload.flops_a_step() / kChurnStepSeconds;
    // Between two averagings a worker of IST has trained a part of its model alone.
    peers.judge_averages = subnets;
    const Glance end = RunPeers(peers, workload).back();
    return {{"loss", end.score.mean},
            {"worst", end.score.worst},
            {"accuracy", end.score.accuracy},
            {"steps", end.steps},
            {"living", end.living}};
  }

  // On a tenth of the time.
  double TuneContender(const ChurnContender& contender) {
    const BestRate best =
        Tune(runs_, {.spec =
                         [&](double rate, uint64_t seed) {
                           return SpecOf({contender, rate, seed, seconds_ / 10, false});
                         },
                     .score = [](const Outcome& outcome) { return outcome.at("loss"); },
                     .first_seed = kChurnTuningSeed,
                     .walk = options_.length == Length::kShort});
    out_.Add(absl::StrCat("churn.", contender.name, ".rate"), best.rate,
             best.inside ? "tuned without churn" : "tuned; at the grid's edge");
    return best.rate;
  }

  const PapersOptions options_;
  const SpotTrace trace_;
  Runs& runs_;
  Figures& out_;
  double seconds_ = 0;
  uint64_t seeds_ = 0;
};

}  // namespace

void ChurnPapers(const PapersOptions& options, Runs& runs, Figures& out) {
  if (options.trace.empty()) return;
  const auto trace = ParseSpotTrace(options.trace, kTraceFaster);
  CHECK(trace.ok());  // the program has looked at it
  ChurnTable(options, *trace, runs, out).Fill();
}

}  // namespace crowdsurf::bench
