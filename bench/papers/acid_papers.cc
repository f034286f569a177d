#include "bench/papers/acid_papers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/training/lock_step_run.h"
#include "bench/training/peers_run.h"
#include "bench/training/tuning.h"

namespace crowdsurf::bench {
namespace {

using worker::GraphKind;

constexpr uint64_t kAcidTuningSeed = 2000;  // apart from the fresh ones
constexpr uint32_t kAcidTunedAt = 16;
constexpr double kAcidStepSeconds = 0.02;
constexpr double kSlowest = 1.2;  // times the step of the fastest
constexpr double kLatency = 0.004;
constexpr double kBytesPerSecond = 1.25e8;
constexpr double kAlpha = 0.1;

// Exchanges a worker and step that are asked for.
struct AcidArm {
  const char* name;
  worker::StrategyKind strategy;
  double exchanges = 1;
};
constexpr AcidArm kAcidArms[] = {{"A2CiD2", worker::StrategyKind::kA2CiD2, 1},
                                 {"A2CiD2.half", worker::StrategyKind::kA2CiD2, 0.5},
                                 {"Gossip", worker::StrategyKind::kGossip, 1}};

struct AcidSetting {
  uint32_t workers = kAcidTunedAt;
  double rate = 0;
  uint64_t seed = 0;
  uint64_t steps = 0;  // of the fastest worker

  std::string name() const {
    return absl::StrCat("/n", workers, "/rate ", rate, "/seed ", seed, "/steps ", steps);
  }
  double seconds() const { return kAcidStepSeconds * static_cast<double>(steps); }
};

DigitsWorkload AcidWorkload(const AcidSetting& setting) {
  return DigitsWorkload({.workers = setting.workers, .alpha = kAlpha, .seed = setting.seed});
}

Outcome AcidOutcome(const Score& score) {
  return {{"loss", score.mean}, {"worst", score.worst}, {"accuracy", score.accuracy}};
}

worker::AveragingConfig AcidConfig(const AcidArm& arm, GraphKind graph) {
  worker::AveragingConfig config = simulator::DescentAveraging(arm.strategy, graph);
  config.overlap = worker::Overlap::kDelayed;
  // An interval of 1 / exchanges steps is gossip's cadence, rate_com A2CiD2's.
  config.interval = 1 / arm.exchanges;
  config.mixing.gossip = worker::GossipMode::kPairs;
  config.mixing.rate_com = arm.exchanges;
  return config;
}

// Also "steps": a worker's on average, and "exchanges": a worker's a step.
RunSpec PeersSpec(const AcidArm& arm, GraphKind graph, const AcidSetting& setting) {
  return {
      absl::StrCat("a2cid2.papers/", arm.name, "/", worker::NameOf(graph), setting.name()), [=] {
        DigitsWorkload workload = AcidWorkload(setting);
        PeersOptions peers;
        peers.descent =
            QuietDescent(AcidConfig(arm, graph), static_cast<int>(setting.workers), setting.seed);
        peers.descent.links = {.min_delay = Seconds(kLatency / 2),
                               .mean_extra_delay = Seconds(kLatency / 2),
                               .bytes_per_second = kBytesPerSecond};
        peers.descent.end = Seconds(setting.seconds());
        // One look, at the end.
        peers.descent.look_every = peers.descent.end;
        peers.step = {.schedule = ScheduleOf(setting.rate, setting.steps), .seed = setting.seed};
        peers.flops_per_second = workload.flops_a_step() / kAcidStepSeconds;
        // Evenly from the fastest to the slowest worker.
        peers.slowness = [&](int node) {
          return 1 + (kSlowest - 1) * node / std::max(1.0, setting.workers - 1.0);
        };
        const Glance end = RunPeers(peers, workload).back();
        Outcome outcome = AcidOutcome(end.score);
        outcome["steps"] = end.steps / setting.workers;
        outcome["exchanges"] = end.pair_ends / end.steps;
        return outcome;
      }};
}

RunSpec AllReduceSpec(const AcidSetting& setting) {
  return {absl::StrCat("a2cid2.papers/AllReduce", setting.name()), [=] {
            DigitsWorkload workload = AcidWorkload(setting);
            LockStepOptions options{
                simulator::BaselineKind::kAllReduce,
                {},
                {.schedule = ScheduleOf(setting.rate, setting.steps), .seed = setting.seed},
                setting.steps};
            options.baseline.graph.nodes = setting.workers;
            return AcidOutcome(RunLockStep(options, workload).score);
          }};
}

// Steps of all-reduce in the time of `steps` of the fastest worker.
uint64_t StepsInTime(uint32_t workers, uint64_t steps, double vector_bytes) {
  // The slowest worker's step, a tree's latencies up and down, and twice the model's bytes.
  const double step = kSlowest * kAcidStepSeconds + 2 * std::log2(workers) * kLatency +
                      2 * vector_bytes / kBytesPerSecond;
  return static_cast<uint64_t>(static_cast<double>(steps) * kAcidStepSeconds / step);
}

class AcidTable {
 public:
  AcidTable(const PapersOptions& options, Runs& runs, Figures& out)
      : options_(options), runs_(runs), out_(out) {
    const bool brief = options.length == Length::kShort;
    steps_ = brief ? 500 : 2000;
    seeds_ = brief ? 3 : 5;
    graphs_ = {GraphKind::kRing, GraphKind::kExponential};
    const bool few = brief && !options.wide;
    if (!few) graphs_.push_back(GraphKind::kComplete);
    workers_ = few ? std::vector<uint32_t>{16} : std::vector<uint32_t>{16, 64};
  }

  void Fill() {
    const double all_reduce =
        TuneArm("AllReduce", [](const AcidSetting& s) { return AllReduceSpec(s); });
    const DigitsWorkload digits({.workers = kAcidTunedAt});
    const double bytes = 4.0 * static_cast<double>(digits.TaskOf(0)->table().elements());
    for (const uint32_t workers : workers_) {
      // As many gradients as the peers take: the mean of 1 / slowness is ln(s) / (s - 1).
      const auto steps_of_all =
          static_cast<uint64_t>(static_cast<double>(steps_) * std::log(kSlowest) / (kSlowest - 1));
      Report("AllReduce.gradients", {workers, all_reduce, 0, steps_of_all},
             [](const AcidSetting& s) { return AllReduceSpec(s); });
      Report("AllReduce.time", {workers, all_reduce, 0, StepsInTime(workers, steps_, bytes)},
             [](const AcidSetting& s) { return AllReduceSpec(s); });
    }
    for (const GraphKind graph : graphs_)
      for (const AcidArm& arm : kAcidArms) OnGraph(arm, graph);
  }

 private:
  template <class SpecOf>
  double TuneArm(const std::string& name, const SpecOf& spec_of) {
    // At 16 workers for all sizes, as the header says.
    const BestRate best =
        Tune(runs_, {.spec =
                         [&](double rate, uint64_t seed) {
                           return spec_of({kAcidTunedAt, rate, seed, steps_});
                         },
                     .score = [](const Outcome& outcome) { return outcome.at("loss"); },
                     .first_seed = kAcidTuningSeed,
                     .walk = options_.length == Length::kShort});
    out_.Add(absl::StrCat("a2cid2.papers.", name, ".rate"), best.rate,
             best.inside ? "tuned at 16 workers" : "tuned; at the grid's edge");
    return best.rate;
  }

  template <class SpecOf>
  void Report(const std::string& name, AcidSetting setting, const SpecOf& spec_of) {
    std::vector<RunSpec> specs;
    for (uint64_t seed = options_.seed; seed < options_.seed + seeds_; ++seed) {
      setting.seed = seed;
      specs.push_back(spec_of(setting));
    }
    runs_.Do(specs);
    const std::string prefix = absl::StrCat("a2cid2.papers.n", setting.workers, ".", name);
    std::vector<double> losses, worst;
    double exchanges = 0;
    for (const RunSpec& spec : specs) {
      losses.push_back(runs_.value(spec.key, "loss"));
      worst.push_back(runs_.value(spec.key, "worst"));
      const Outcome& outcome = runs_.of(spec.key);
      if (outcome.contains("exchanges"))
        exchanges += outcome.at("exchanges") / static_cast<double>(specs.size());
    }
    const Estimate loss = EstimateOf(losses);
    out_.Add(prefix + ".loss", loss.mean, absl::StrCat("+- ", loss.interval));
    out_.Add(prefix + ".loss.interval", loss.interval, "");
    out_.Add(prefix + ".loss.worst", *std::max_element(worst.begin(), worst.end()),
             "the worst worker of all seeds");
    if (exchanges > 0)
      out_.Add(prefix + ".exchanges", exchanges, "a worker and step, as they were done");
  }

  void OnGraph(const AcidArm& arm, GraphKind graph) {
    const auto spec_of = [&](const AcidSetting& s) { return PeersSpec(arm, graph, s); };
    const std::string name = absl::StrCat(worker::NameOf(graph), ".", arm.name);
    const double rate = TuneArm(name, spec_of);
    for (const uint32_t workers : workers_) Report(name, {workers, rate, 0, steps_}, spec_of);
  }

  const PapersOptions options_;
  Runs& runs_;
  Figures& out_;
  uint64_t steps_ = 0;
  uint64_t seeds_ = 0;
  std::vector<uint32_t> workers_;
  std::vector<GraphKind> graphs_;
};

}  // namespace

void AcidPapers(const PapersOptions& options, Runs& runs, Figures& out) {
  AcidTable(options, runs, out).Fill();
}

}  // namespace crowdsurf::bench
