#include "bench/pair_figures.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bench/pair_rate.h"
#include "bench/ring_job.h"
#include "bench/seeds.h"
#include "simulator/lock_step/convergence.h"

namespace crowdsurf::bench {

void A2CiD2(uint64_t seed, uint64_t seeds, Figures& out) {
  double drift = 0;
  const std::map<uint32_t, const char*> anchors = {{16, "reference 2.5, theory 3.74"},
                                                   {32, "reference 4.7, theory 7.33"},
                                                   {64, "reference 8.9, theory 14.5"}};
  for (const auto& [n, anchor] : anchors) {
    const auto exchanges = [&, nodes = n](bool momentum) {
      std::vector<double> drifts(seeds);
      const double mean = MeanOverSeeds(seed, seeds, [&](uint64_t s) {
        const auto result = simulator::RunConsensus({.n = nodes, .momentum = momentum, .seed = s});
        drifts[s - seed] = result.invariant_drift;
        return result.exchanges;
      });
      // The drift is a bound, so the worst of all seeds counts.
      drift = std::max(drift, *std::max_element(drifts.begin(), drifts.end()));
      return mean;
    };
    const double gossip = exchanges(false);
    out.Add("a2cid2.ring" + std::to_string(n), gossip / exchanges(true), anchor);
  }
  out.Add("a2cid2.invariant", drift, "bound 1e-12");
}

void Ring16(uint64_t seed, uint64_t seeds, Figures& out) {
  out.Add("a2cid2.job",
          MeanOverSeeds(seed, seeds, [](uint64_t s) { return RunRingJob({.seed = s}).ratio; }),
          "exchanges to gossip's final loss, label-sorted digits, ring of 16; bound .5");
}

void PairRate(uint64_t seed, uint64_t seeds, Figures& out) {
  double least = 1, longest = 0, drift = 0;
  for (const double rate : {1.0, 2.0, 4.0}) {
    const auto run = [&](worker::StrategyKind strategy, double& reached) {
      std::vector<PairRateResult> results(seeds);
      // MeanOverSeeds for its two threads, and for the steps.
      const double steps = MeanOverSeeds(seed, seeds, [&](uint64_t s) {
        PairRateResult& result = results[s - seed];
        result = RunPairRate({.strategy = strategy, .rate = rate, .seed = s});
        return result.steps;
      });
      for (const PairRateResult& result : results) {
        reached += result.reached / static_cast<double>(seeds);
        drift = std::max(drift, result.drift);
      }
      return steps;
    };
    double reached = 0, gossips = 0;
    const double gossip = run(worker::StrategyKind::kGossip, gossips);
    const double time = run(worker::StrategyKind::kA2CiD2, reached) / gossip;
    const std::string key = "a2cid2.rate." + std::to_string(static_cast<int>(rate));
    out.Add(key + ".reached", reached, "exchanges made over asked for, rateCom as in the key");
    out.Add(key + ".gossip", gossips, "the same of gossip in pairs");
    out.Add(key + ".time", time, "time to 1e-6 over gossip's");
    least = std::min(least, reached);
    longest = std::max(longest, time);
  }
  out.Add("a2cid2.rate", least,
          "ring of 16, messages of .2 step, the least of the three; bound .95");
  out.Add("a2cid2.rate.time", longest, "the longest of the three; bound .8");
  out.Add("a2cid2.rate.drift", drift, "of the mean, in the numbers' deviation; float32");
}

}  // namespace crowdsurf::bench
