#include "bench/papers/moshpit_papers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/training/curve.h"
#include "bench/training/lock_step_run.h"
#include "bench/training/lock_step_times.h"
#include "bench/training/peers_run.h"
#include "bench/training/spot_trace.h"
#include "bench/training/tuning.h"

namespace crowdsurf::bench {
namespace {

constexpr uint64_t kMoshpitTuningSeed = 4000;  // apart from the fresh ones
constexpr double kMoshpitStepSeconds = 0.5;
// 102 MB of a ResNet-50 on 1 Gbit/s.
constexpr double kVectorSeconds = 102e6 / 1.25e8;
constexpr double kMinDelay = 0.003, kMeanExtraDelay = 0.1;
constexpr double kSpeedSigma = 0.5;
constexpr int kLooks = 40;
// Of a model: a chunk that takes as long as silence may last would be taken for a death.
constexpr size_t kChunks = 128;
constexpr double kMarketFaster = 10;  // than it was recorded
// Of all-reduce, that much faster too: half a minute to start again, a checkpoint in five minutes.
constexpr double kRestartSeconds = 30 / kMarketFaster, kCheckpointSeconds = 300 / kMarketFaster;

enum class Racer { kMoshpit, kAdPsgd, kPushSum, kAllReduce };
constexpr Racer kRacers[] = {Racer::kMoshpit, Racer::kAdPsgd, Racer::kPushSum, Racer::kAllReduce};

const char* NameOfRacer(Racer racer) {
  switch (racer) {
    case Racer::kMoshpit:
      return "Moshpit";
    case Racer::kAdPsgd:
      return "AdPsgd";
    case Racer::kPushSum:
      return "PushSum";
    case Racer::kAllReduce:
      return "AllReduce";
  }
  return "";
}

// Where a race is run.
struct Track {
  std::string name;
  uint32_t workers = 16;
  bool equal = true;                  // speeds
  const SpotTrace* market = nullptr;  // else nobody dies
  std::string trace = "";             // BriefOf it
};

struct Race {
  Racer racer;
  Track track;
  double rate = 0;
  uint64_t seed = 0;
  double seconds = 0;
};

std::vector<double> SlownessOf(const Race& race) {
  Rng rng = Rng(race.seed).Fork("speeds");
  std::vector<double> slowness(race.track.workers, 1);
  if (!race.track.equal)
    // Lognormal: half of the workers are slower than one of speed 1.
    for (double& s : slowness) s = std::exp(kSpeedSigma * rng.Normal());
  return slowness;
}

StepOptions StepsOf(const Race& race) {
  return {
      .schedule = {.kind = trainer::ScheduleKind::kConstant, .rate = race.rate, .warmup_steps = 50},
      .seed = race.seed};
}

Outcome RacePeers(const Race& race, Workload& workload) {
  const bool moshpit = race.racer == Racer::kMoshpit;
  worker::AveragingConfig config = simulator::DescentAveraging(
      moshpit ? worker::StrategyKind::kMoshpit : worker::StrategyKind::kGossip,
      worker::GraphKind::kExponential);
  config.overlap = worker::Overlap::kDelayed;
  config.mixing.gossip = worker::GossipMode::kPairs;
  config.group_size = 8;
  // Moshpit averages every ten steps; gossip exchanges at each.
  if (moshpit) config.interval = 10;
  PeersOptions peers;
  peers.descent = QuietDescent(config, static_cast<int>(race.track.workers), race.seed);
  const size_t elements = workload.TaskOf(0)->table().elements();
  const double bytes = 4.0 * static_cast<double>(elements);
  peers.chunk_elements = elements / kChunks;
  peers.descent.links = {.min_delay = Seconds(kMinDelay),
                         .mean_extra_delay = Seconds(kMeanExtraDelay),
                         .bytes_per_second = bytes / kVectorSeconds};
  if (race.track.market != nullptr) {
    const SpotTrace& market = *race.track.market;
    peers.descent.members = market.members;
    peers.descent.joins = market.joins;
    peers.descent.deaths = market.deaths;
    peers.descent.victims = market.victims;
  }
  peers.descent.end = Seconds(race.seconds);
  peers.descent.look_every = Seconds(race.seconds / kLooks);
  peers.step = StepsOf(race);
  // At slowness 1 a step takes its nominal time, whatever the model costs.
  peers.flops_per_second = workload.flops_a_step() / kMoshpitStepSeconds;
  const std::vector<double> slowness = SlownessOf(race);
  // Joiners take the drawn speeds in turn.
  peers.slowness = [&](int node) { return slowness[static_cast<size_t>(node) % slowness.size()]; };
  Curve curve;
  for (const Glance& glance : RunPeers(peers, workload))
    curve.Add({glance.seconds, glance.bytes, glance.score});
  return curve.outcome();
}

Outcome RaceLockStep(const Race& race, Workload& workload) {
  Surroundings around;
  for (const double slowness : SlownessOf(race))
    around.step_seconds.push_back(slowness * kMoshpitStepSeconds);
  around.vector_seconds = kVectorSeconds;
  around.min_delay = kMinDelay;
  around.mean_extra_delay = kMeanExtraDelay;
  Restarts restarts;
  if (race.track.market != nullptr) {
    for (const Duration death : race.track.market->deaths)
      restarts.deaths.push_back(death.seconds());
    restarts.restart_seconds = kRestartSeconds;
    restarts.checkpoint_seconds = kCheckpointSeconds;
  }
  const bool all_reduce = race.racer == Racer::kAllReduce;
  // As many as could be done in the time by computing alone.
  const auto most = static_cast<uint64_t>(race.seconds / kMoshpitStepSeconds);
  const Rng rng = Rng(race.seed).Fork("delays");
  std::vector<double> times =
      all_reduce ? AllReduceTimes(around, restarts, most, rng) : PushSumTimes(around, 1, most, rng);
  // What ends after the race does not count.
  while (times.size() > 1 && times.back() > race.seconds) times.pop_back();
  LockStepOptions options;
  options.kind =
      all_reduce ? simulator::BaselineKind::kAllReduce : simulator::BaselineKind::kPushSum;
  options.baseline.graph.nodes = race.track.workers;
  options.step = StepsOf(race);
  options.steps = times.size();
  options.look_every = std::max<uint64_t>(1, times.size() / kLooks);
  Curve curve;
  for (const LockStepLook& look : RunLockStep(options, workload).looks)
    curve.Add({times[look.steps - 1], look.bytes, look.score});
  return curve.outcome();
}

RunSpec SpecOfRace(const Race& race) {
  return {
      absl::StrCat("moshpit.time/", NameOfRacer(race.racer), "/", race.track.name, race.track.trace,
                   "/rate ", race.rate, "/seed ", race.seed, "/seconds ", race.seconds),
      [race] {
        DigitsWorkload workload({.alpha = 0, .seed = race.seed});
        const bool peers = race.racer == Racer::kMoshpit || race.racer == Racer::kAdPsgd;
        return peers ? RacePeers(race, workload) : RaceLockStep(race, workload);
      }};
}

class MoshpitTable {
 public:
  MoshpitTable(const PapersOptions& options, Runs& runs, Figures& out)
      : options_(options), runs_(runs), out_(out) {
    const bool brief = options.length == Length::kShort;
    seconds_ = brief ? 150 : 1000;
    seeds_ = brief ? 3 : 5;
  }

  void Fill() {
    for (const Racer racer : kRacers) TuneRacer(racer);
    Compare({"equal16", 16, true});
    Compare({"lognormal64", 64, false});
    if (options_.trace.empty()) return;
    const auto market = ParseSpotTrace(options_.trace, kMarketFaster);
    CHECK(market.ok());  // the program has looked at it
    const auto workers = static_cast<uint32_t>(std::lround(market->mean_living));
    Compare({"market", workers, true, &*market, BriefOf(options_.trace)});
  }

 private:
  void TuneRacer(Racer racer) {
    const BestRate best =
        Tune(runs_, {.spec =
                         [&](double rate, uint64_t seed) {
                           return SpecOfRace({racer, {"equal16", 16, true}, rate, seed, seconds_});
                         },
                     .score = LastLoss,
                     .first_seed = kMoshpitTuningSeed,
                     .walk = options_.length == Length::kShort});
    rates_[racer] = best.rate;
    out_.Add(absl::StrCat("moshpit.time.", NameOfRacer(racer), ".rate"), best.rate,
             best.inside ? "tuned at 16 workers" : "tuned; at the grid's edge");
  }

  // Times to one loss over Moshpit's, seed by seed.
  void Compare(const Track& track) {
    std::map<Racer, std::vector<double>> ratios, spreads;
    for (uint64_t seed = options_.seed; seed < options_.seed + seeds_; ++seed) {
      std::vector<RunSpec> specs;
      for (const Racer racer : kRacers)
        specs.push_back(SpecOfRace({racer, track, rates_.at(racer), seed, seconds_}));
      runs_.Do(specs);
      // The highest loss that one of them ends at: all reach it.
      double loss = 0;
      for (const RunSpec& spec : specs) loss = std::max(loss, LastLoss(runs_.of(spec.key)));
      const double ours = SecondsTo(runs_.of(specs[0].key), loss);
      for (size_t i = 0; i < specs.size(); ++i) {
        const Outcome& curve = runs_.of(specs[i].key);
        ratios[kRacers[i]].push_back(SecondsTo(curve, loss) / ours);
        spreads[kRacers[i]].push_back(LastSpread(curve));
      }
    }
    for (const Racer racer : kRacers) {
      const std::string key = absl::StrCat("moshpit.time.", track.name, ".", NameOfRacer(racer));
      const Estimate ratio = EstimateOf(ratios.at(racer));
      if (racer != Racer::kMoshpit) {
        out_.Add(key, ratio.mean,
                 absl::StrCat("times Moshpit's, +- ", ratio.interval, "; published 1.3 to 1.5"));
        out_.Add(key + ".interval", ratio.interval, "");
      }
      out_.Add(key + ".spread", EstimateOf(spreads.at(racer)).mean,
               "distance of the models to their mean, at the end");
    }
  }

  const PapersOptions options_;
  Runs& runs_;
  Figures& out_;
  double seconds_ = 0;
  uint64_t seeds_ = 0;
  std::map<Racer, double> rates_;
};

}  // namespace

void MoshpitPapers(const PapersOptions& options, Runs& runs, Figures& out) {
  MoshpitTable(options, runs, out).Fill();
}

}  // namespace crowdsurf::bench
