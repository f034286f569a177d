#include "bench/papers/power_papers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "bench/training/curve.h"
#include "bench/training/lock_step_run.h"
#include "bench/training/peers_run.h"
#include "bench/training/task_model.h"
#include "bench/training/tuning.h"
#include "worker/core/power/power_layout.h"

namespace crowdsurf::bench {
namespace {

using simulator::BaselineKind;
using simulator::Compressor;

constexpr uint64_t kPowerTuningSeed = 5000;  // apart from the fresh ones
constexpr uint32_t kPowerWorkers = 16;
constexpr double kPowerStepSeconds = 0.02;
constexpr uint64_t kPowerLooks = 40;
constexpr double kKept = 0.01;  // of the values, by top-k

// One way to talk: ours, or theirs with a consensus rate.
struct Talk {
  std::string name;
  std::function<Outcome(const Talk&, double rate, uint64_t seed, uint64_t steps)> run;
  double interval = 1;        // steps, of dense gossip
  double consensus_rate = 1;  // Choco, DeepSqueeze
};

// Of PowerGossip in lock step: what an exchange begins with.
enum class Factors : uint8_t { kWarm, kCold };

// Talks that differ in one setting: each is compared, or only the one with the lowest tuned loss.
struct Family {
  enum class Choice : uint8_t { kEach, kBest };
  std::string name;
  Choice choice = Choice::kEach;
  std::vector<Talk> talks = {};
};

// Plain SGD at a constant rate: PowerGossip's experiments on text have no momentum.
StepOptions PowerSteps(double rate, uint64_t seed) {
  return {.schedule = {.kind = trainer::ScheduleKind::kConstant, .rate = rate, .warmup_steps = 20},
          .momentum = 0,
          .clip = 1,
          .seed = seed};
}

class PowerTable {
 public:
  PowerTable(const PapersOptions& options, trainer::Corpus corpus, Runs& runs, Figures& out)
      : options_(options), corpus_(std::move(corpus)), runs_(runs), out_(out) {
    const bool brief = options.length == Length::kShort;
    steps_ = brief ? 400 : 2000;
    seeds_ = brief ? 1 : 5;
    if (brief) consensus_rates_ = {0.05, 0.2, 0.8};
  }

  void Fill() {
    const Talk power{.name = "PowerGossip", .run = Peers(worker::StrategyKind::kPowerGossip)};
    const double rate = TuneTalk(power).rate;
    for (uint64_t seed = options_.seed; seed < options_.seed + seeds_; ++seed) {
      const Outcome& curve = Do(power, rate, seed);
      // All are measured at the loss that PowerGossip ends at, plus a hundredth.
      losses_.push_back(1.01 * LastLoss(curve));
      bytes_.push_back(BytesTo(curve, losses_.back()));
    }
    out_.Add("powergossip.loss", EstimateOf(losses_).mean,
             "bits per character, held out, plus 1 %");
    Family dense{"Gossip"};
    // Rarer exchanges cost fewer bytes and more steps: the best of them is compared.
    for (const double interval : {1.0, 4.0, 16.0, 64.0})
      dense.talks.push_back({.name = absl::StrCat("Gossip", interval),
                             .run = Peers(worker::StrategyKind::kGossip),
                             .interval = interval});
    MinBytes({"PowerGossip",
              Family::Choice::kEach,
              {{.name = "PowerGossip.warm", .run = LockStep(Factors::kWarm)},
               {.name = "PowerGossip.cold", .run = LockStep(Factors::kCold)}}});
    out_.Add("powergossip.bytes", 1 / MinBytes(dense),
             "of the best dense gossip's bytes; bound 1/4, aim 1/15");
    const double choco =
        std::min(MinBytes(Search("Choco.sign", BaselineKind::kChoco, Compressor::Kind::kSign)),
                 MinBytes(Search("Choco.top", BaselineKind::kChoco, Compressor::Kind::kTopK)));
    out_.Add("powergossip.choco", 1 / choco, "of tuned Choco's bytes; bound 1.1, aim .8");
    MinBytes(Search("DeepSqueeze.sign", BaselineKind::kDeepSqueeze, Compressor::Kind::kSign));
  }

 private:
  using Run = std::function<Outcome(const Talk&, double, uint64_t, uint64_t)>;

  Run Peers(worker::StrategyKind strategy) {
    return [this, strategy](const Talk& talk, double rate, uint64_t seed, uint64_t steps) {
      TextWorkload workload(corpus_);
      worker::AveragingConfig config =
          simulator::DescentAveraging(strategy, worker::GraphKind::kRing);
      config.overlap = worker::Overlap::kDelayed;
      config.interval = talk.interval;
      config.mixing.gossip = worker::GossipMode::kNeighbours;
      PeersOptions peers;
      peers.descent = QuietDescent(config, kPowerWorkers, seed);
      // Time enough: the run ends with its steps.
      peers.descent.end = Seconds(4 * kPowerStepSeconds * static_cast<double>(steps));
      peers.descent.look_every =
          Seconds(kPowerStepSeconds * static_cast<double>(steps) / kPowerLooks);
      peers.step = PowerSteps(rate, seed);
      peers.steps = steps;
      peers.flops_per_second = workload.flops_a_step() / kPowerStepSeconds;
      // Models of two workers are enough for a look; all are judged at the end.
      peers.judged = 2;
      Curve curve;
      for (const Glance& glance : RunPeers(peers, workload))
        curve.Add({glance.seconds, glance.bytes, glance.score});
      return curve.outcome();
    };
  }

  Run LockStep(BaselineKind kind, Compressor::Kind compressor) {
    return [this, kind, compressor](const Talk& talk, double rate, uint64_t seed, uint64_t steps) {
      LockStepOptions options;
      options.kind = kind;
      options.baseline.compressor = {compressor, kKept, {}};
      // As the released code compresses: each tensor apart.
      const auto task = TextWorkload(corpus_).TaskOf(0);
      for (const trainer::TensorSpec& tensor : task->table().tensors())
        options.baseline.compressor.tensors.push_back({tensor.offset, tensor.elements()});
      options.baseline.consensus_rate = talk.consensus_rate;
      return Rounds(options, rate, seed, steps);
    };
  }
  Run LockStep(Factors factors) {
    return [this, factors](const Talk&, double rate, uint64_t seed, uint64_t steps) {
      const auto task = TextWorkload(corpus_).TaskOf(0);
      LockStepOptions options;
      options.kind = BaselineKind::kPowerGossip;
      options.baseline.power_layout = std::make_shared<const worker::PowerLayout>(
          MatricesOf(task->table()), task->table().elements(), 1);
      options.baseline.warm = factors == Factors::kWarm;
      options.baseline.seed = seed;
      return Rounds(options, rate, seed, steps);
    };
  }
  Outcome Rounds(LockStepOptions options, double rate, uint64_t seed, uint64_t steps) {
    TextWorkload workload(corpus_);
    options.baseline.graph = worker::MakeGraph(worker::GraphKind::kRing, kPowerWorkers).value();
    options.step = PowerSteps(rate, seed);
    options.steps = steps;
    options.look_every = std::max<uint64_t>(1, steps / kPowerLooks);
    options.judged = 2;
    Curve curve;
    for (const LockStepLook& look : RunLockStep(options, workload).looks)
      // Lock step has no clock: a look's time is its step.
      curve.Add({static_cast<double>(look.steps), look.bytes, look.score});
    return curve.outcome();
  }

  Family Search(const std::string& name, BaselineKind kind, Compressor::Kind compressor) {
    Family family{name, Family::Choice::kBest};
    for (const double rate : consensus_rates_)
      family.talks.push_back({.name = absl::StrCat(name, ".", rate),
                              .run = LockStep(kind, compressor),
                              .consensus_rate = rate});
    return family;
  }

  RunSpec SpecOf(const Talk& talk, double rate, uint64_t seed, uint64_t steps) {
    // The key has all that the outcome depends on, the text too.
    return {absl::StrCat("powergossip/", talk.name, "/text ", text_, "/rate ", rate, "/seed ", seed,
                         "/steps ", steps),
            [talk, rate, seed, steps] { return talk.run(talk, rate, seed, steps); }};
  }
  const Outcome& Do(const Talk& talk, double rate, uint64_t seed) {
    const RunSpec spec = SpecOf(talk, rate, seed, steps_);
    runs_.Do({spec});
    return runs_.of(spec.key);
  }

  // By the loss after a quarter of the steps.
  BestRate TuneTalk(const Talk& talk) {
    const BestRate best = Tune(
        runs_,
        {.spec = [&](double rate, uint64_t seed) { return SpecOf(talk, rate, seed, steps_ / 4); },
         .score = LastLoss,
         .first_seed = kPowerTuningSeed,
         .rates = {0.125, 0.25, 0.5, 1, 2, 4, 8},
         .walk = options_.length == Length::kShort});
    out_.Add(absl::StrCat("powergossip.", talk.name, ".rate"), best.rate,
             best.inside ? "tuned" : "tuned; at the grid's edge");
    return best;
  }

  // Bytes to our loss over ours, of the talk that needs the least.
  double MinBytes(const Family& family) {
    std::vector<std::pair<Talk, BestRate>> chosen;
    uint64_t tried = 0;
    for (const Talk& talk : family.talks) {
      chosen.emplace_back(talk, TuneTalk(talk));
      tried += kTuningSeeds * chosen.back().second.tried;
    }
    // Choosing by tuned loss costs runs, and these are said.
    if (family.choice == Family::Choice::kBest) {
      out_.Add(absl::StrCat("powergossip.", family.name, ".search"), static_cast<double>(tried),
               "runs to tune it");
      chosen = {*std::min_element(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) {
        return a.second.score < b.second.score;
      })};
    }
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [talk, best] : chosen) {
      std::vector<double> ratios;
      for (size_t i = 0; i < losses_.size(); ++i)
        ratios.push_back(BytesTo(Do(talk, best.rate, options_.seed + i), losses_[i]) / bytes_[i]);
      const Estimate ratio = EstimateOf(ratios);
      out_.Add(absl::StrCat("powergossip.", talk.name, ".bytes"), ratio.mean,
               absl::StrCat("times PowerGossip's, +- ", ratio.interval));
      least = std::min(least, ratio.mean);
    }
    return least;
  }

  const PapersOptions options_;
  const trainer::Corpus corpus_;
  const std::string text_ = BriefOf(options_.text);
  Runs& runs_;
  Figures& out_;
  std::vector<double> consensus_rates_ = {0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8};
  uint64_t steps_ = 0;
  uint64_t seeds_ = 0;
  // Of PowerGossip, by fresh seed: the loss that all are measured at, and its bytes up to there.
  std::vector<double> losses_, bytes_;
};

}  // namespace

void PowerPapers(const PapersOptions& options, Runs& runs, Figures& out) {
  if (options.text.empty()) return;
  auto corpus = trainer::MakeCorpus(options.text, kSplitSeed);
  CHECK(corpus.ok());  // the program has looked at it
  PowerTable(options, *std::move(corpus), runs, out).Fill();
}

}  // namespace crowdsurf::bench
