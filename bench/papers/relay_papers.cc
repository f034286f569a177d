#include "bench/papers/relay_papers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "bench/training/lock_step_run.h"
#include "bench/training/peers_run.h"
#include "bench/training/tuning.h"

namespace crowdsurf::bench {
namespace {

using simulator::BaselineKind;
using worker::GraphKind;

constexpr uint64_t kRelayTuningSeed = 1000;  // apart from the fresh ones
constexpr uint32_t kRelayTunedAt = 16;       // workers
constexpr Duration kRelayStepTime = Milliseconds(20);

struct RelayMethod {
  const char* name;
  std::optional<BaselineKind> baseline;  // none: ours
  GraphKind graph;
  bool ranked = true;
};
constexpr RelayMethod kRelayMethods[] = {
    {"RelaySum", std::nullopt, GraphKind::kDoubleBinaryTree},
    {"DPsgd", BaselineKind::kDPsgd, GraphKind::kRing},
    {"D2", BaselineKind::kD2, GraphKind::kRing},
    {"GradientTracking", BaselineKind::kGradientTracking, GraphKind::kRing},
    {"QuasiGlobal", BaselineKind::kQuasiGlobal, GraphKind::kRing},
    {"PushSum", BaselineKind::kPushSum, GraphKind::kExponential},
    {"AllReduce", BaselineKind::kAllReduce, GraphKind::kComplete, false},
};

struct RelayCell {
  double alpha = 0.1;
  uint32_t workers = kRelayTunedAt;
  double loss = 0;

  std::string name() const {
    return absl::StrCat("a", alpha, ".n", workers, ".loss", std::lround(100 * loss));
  }
};

struct RelayTrial {
  const RelayMethod* method;
  RelayCell cell;
  double rate = 0;
  uint64_t seed = 0;
  uint64_t steps = 0;

  std::string key() const {
    return absl::StrCat("relaysum.papers/", method->name, "/", cell.name(), "/rate ", rate,
                        "/seed ", seed, "/steps ", steps);
  }
};

Score RunRelaySum(const RelayTrial& trial, Workload& workload, const StepOptions& step) {
  PeersOptions peers;
  peers.descent = QuietDescent(
      simulator::DescentAveraging(worker::StrategyKind::kRelaySum, trial.method->graph),
      static_cast<int>(trial.cell.workers), trial.seed);
  peers.descent.links.tensor_loss = trial.cell.loss;
  // Time enough: the run ends with its steps.
  const double nominal = kRelayStepTime.seconds() * static_cast<double>(trial.steps);
  peers.descent.look_every = Seconds(nominal / 4);
  peers.descent.end = Seconds(4 * nominal);
  peers.step = step;
  peers.steps = trial.steps;
  // A step takes its nominal time, whatever the model costs.
  peers.flops_per_second = workload.flops_a_step() / kRelayStepTime.seconds();
  peers.judged = 1;
  return RunPeers(peers, workload).back().score;
}

Outcome RunRelayTrial(const RelayTrial& trial) {
  DigitsWorkload workload(
      {.workers = trial.cell.workers, .alpha = trial.cell.alpha, .seed = trial.seed});
  const StepOptions step{.schedule = ScheduleOf(trial.rate, trial.steps), .seed = trial.seed};
  Score score;
  if (trial.method->baseline) {
    LockStepOptions lock_step{*trial.method->baseline, {}, step, trial.steps};
    lock_step.baseline.graph = worker::MakeGraph(trial.method->graph, trial.cell.workers).value();
    lock_step.baseline.loss = trial.cell.loss;
    // PushSum sends two messages where a ring sends to both neighbours: equal bytes.
    lock_step.baseline.messages_a_step = 2;
    lock_step.baseline.seed = trial.seed;
    score = RunLockStep(lock_step, workload).score;
  } else {
    score = RunRelaySum(trial, workload, step);
  }
  return {{"loss", score.mean},
          {"worst", score.worst},
          {"accuracy", score.accuracy},
          {"worst_accuracy", score.worst_accuracy}};
}

RunSpec RelaySpec(const RelayTrial& trial) {
  return {trial.key(), [trial] { return RunRelayTrial(trial); }};
}

class RelayTable {
 public:
  RelayTable(const PapersOptions& options, Runs& runs, Figures& out)
      : options_(options), runs_(runs), out_(out) {
    const bool brief = options.length == Length::kShort;
    steps_ = brief ? 500 : 2000;
    seeds_ = brief ? 3 : 5;
    const bool few = brief && !options.wide;
    losses_ = few ? std::vector<double>{0, 0.1} : std::vector<double>{0, 0.01, 0.1};
    workers_ = few ? std::vector<uint32_t>{16, 8} : std::vector<uint32_t>{16, 8, 64};
  }

  void Fill() {
    for (const double alpha : {0.1, 0.01}) {
      // Tuned for each split, at 16 workers and without loss.
      for (const RelayMethod& method : kRelayMethods) TuneMethod(method, alpha);
      for (const uint32_t workers : workers_)
        for (const double loss : losses_) Compare({alpha, workers, loss});
    }
    out_.Add("relaysum.papers.rank", worst_rank_,
             "worst place of RelaySum in a cell, by mean loss; bound 2");
  }

 private:
  void TuneMethod(const RelayMethod& method, double alpha) {
    const BestRate best =
        Tune(runs_, {.spec =
                         [&](double rate, uint64_t seed) {
                           return RelaySpec({&method, {alpha}, rate, seed, steps_});
                         },
                     .score = [](const Outcome& outcome) { return outcome.at("loss"); },
                     .first_seed = kRelayTuningSeed,
                     .walk = options_.length == Length::kShort});
    tuned_[{method.name, alpha}] = best.rate;
    out_.Add(absl::StrCat("relaysum.papers.a", alpha, ".", method.name, ".rate"), best.rate,
             best.inside ? "tuned at 16 workers, no loss" : "tuned; at the grid's edge");
  }

  // The method's mean loss in the cell.
  double Evaluate(const RelayMethod& method, const RelayCell& cell) {
    std::vector<RunSpec> specs;
    std::vector<std::string> keys;
    for (uint64_t seed = options_.seed; seed < options_.seed + seeds_; ++seed) {
      const RelayTrial trial{&method, cell, tuned_.at({method.name, cell.alpha}), seed, steps_};
      specs.push_back(RelaySpec(trial));
      keys.push_back(trial.key());
    }
    runs_.Do(specs);
    const auto values = [&](const char* name) {
      std::vector<double> all;
      all.reserve(keys.size());
      for (const std::string& key : keys) all.push_back(runs_.value(key, name));
      return all;
    };
    const std::string prefix = absl::StrCat("relaysum.papers.", cell.name(), ".", method.name);
    const Estimate loss = EstimateOf(values("loss")), accuracy = EstimateOf(values("accuracy"));
    const std::vector<double> worst = values("worst_accuracy");
    out_.Add(prefix + ".loss", loss.mean, absl::StrCat("+- ", loss.interval));
    out_.Add(prefix + ".loss.interval", loss.interval, "");
    out_.Add(prefix + ".accuracy", accuracy.mean, absl::StrCat("+- ", accuracy.interval));
    out_.Add(prefix + ".accuracy.worst", *std::min_element(worst.begin(), worst.end()),
             "the worst worker of all seeds");
    return loss.mean;
  }

  void Compare(const RelayCell& cell) {
    double ours = 0;
    int rank = 1;
    for (const RelayMethod& method : kRelayMethods) {
      const double loss = Evaluate(method, cell);
      // RelaySum is the first in the list, so it is known for the others.
      if (!method.baseline) ours = loss;
      // All-reduce stands beside them and has no place.
      if (method.baseline && method.ranked && loss < ours) ++rank;
    }
    worst_rank_ = std::max(worst_rank_, rank);
    out_.Add(absl::StrCat("relaysum.papers.", cell.name(), ".rank"), rank,
             "place of RelaySum among six; bound 2");
  }

  const PapersOptions options_;
  Runs& runs_;
  Figures& out_;
  uint64_t steps_ = 0;
  uint64_t seeds_ = 0;
  std::vector<uint32_t> workers_;
  std::vector<double> losses_;  // shares of the messages
  std::map<std::pair<std::string, double>, double> tuned_;
  int worst_rank_ = 0;
};

}  // namespace

void RelayPapers(const PapersOptions& options, Runs& runs, Figures& out) {
  RelayTable(options, runs, out).Fill();
}

}  // namespace crowdsurf::bench
