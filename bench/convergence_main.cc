// Prints how fast and how exactly each strategy's own arithmetic converges, beside the published
// figures.
//
// Deterministic under --seed: no clock, no network. Flat JSON with --json, a table without. The
// same experiments, with fewer seeds, are the paper tests; chaos.* runs whole jobs of real peers in
// virtual time (simulator/descent/descent.h). Sources of the anchors: Ryabinin et
// al. 2021, Nabli et al. 2023, Vogels et al. 2021.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "bench/gradients_equal.h"
#include "bench/int8_job.h"
#include "bench/ist_digits.h"
#include "bench/ist_exchange.h"
#include "bench/label_sorted.h"
#include "bench/pair_figures.h"
#include "bench/seeds.h"
#include "simulator/descent/descent.h"
#include "simulator/descent/outer_descent.h"
#include "simulator/lock_step/averaging.h"
#include "simulator/lock_step/convergence.h"
#include "simulator/lock_step/other_averages.h"
#include "simulator/lock_step/power_consensus.h"

namespace crowdsurf {
namespace {

using bench::Figures;
using bench::MeanOverSeeds;
using worker::GraphKind;

void Moshpit(uint64_t seed, uint64_t seeds, Figures& out) {
  struct Rate {
    double value;
    const char* name;
  };
  constexpr Rate kRates[] = {{0, "0"}, {.001, "0.001"}, {.005, "0.005"}, {.01, "0.01"}};
  struct Row {
    size_t peers;
    const char* anchors[4];  // by rate
  };
  // Rounds to a variance of 1e-9, of the table that Moshpit's authors published (docs/papers.md).
  const Row rows[] = {{512, {"published 8.2", "published 8.5", "published 8.8", "published 8.8"}},
                      {768, {"published 6.0", "published 6.0", "published 6.6", "published 6.9"}},
                      {900, {"published 5.0", "published 5.1", "published 5.9", "published 6.5"}},
                      {1024, {"rerun 2.0", "rerun 3.4", "rerun 5.2", "rerun 5.8"}}};
  for (const Row& row : rows) {
    for (size_t r = 0; r < std::size(kRates); ++r) {
      const double rounds = MeanOverSeeds(seed, seeds, [&](uint64_t s) {
        simulator::AveragingOptions options;
        options.peers = row.peers;
        options.failure_rate = kRates[r].value;
        return static_cast<double>(simulator::SimulateAveraging<double>(options, s).rounds);
      });
      out.Add("moshpit." + std::to_string(row.peers) + "." + kRates[r].name, rounds,
              row.anchors[r]);
    }
  }
}

// What Moshpit's authors compare it with, of 1,024 workers of which each is absent with p = .005.
void MoshpitsOthers(uint64_t seed, uint64_t seeds, Figures& out) {
  const auto rounds = [&](simulator::OtherAverage kind) {
    return MeanOverSeeds(seed, seeds, [&](uint64_t s) {
      return static_cast<double>(
          simulator::RoundsOf(kind, {.peers = 1024, .failure_rate = .005}, s));
    });
  };
  out.Add("moshpit.1024.0.005.allreduce", rounds(simulator::OtherAverage::kAllReduce),
          "all-reduce that starts again; rerun 42.6; 50 is the cap");
  out.Add("moshpit.1024.0.005.ring", rounds(simulator::OtherAverage::kRing), "gossip; rerun 50");
  out.Add("moshpit.1024.0.005.random", rounds(simulator::OtherAverage::kRandomGroups),
          "random groups of 32; rerun 6.7");
}

void RelaySum(uint64_t seed, Figures& out) {
  // RelaySum's closed forms: what an update is diluted to, and when the mean is exact.
  const double delivery = std::max(simulator::RelayDeliveryError(GraphKind::kChain, 16),
                                   simulator::RelayDeliveryError(GraphKind::kBinaryTree, 16));
  out.Add("relaysum.delivery", delivery, "closed form 1 / (1 + mean delay), bound 1e-6");
  const bool finite = simulator::RelayFiniteSteps(GraphKind::kChain, 16) == 15 &&
                      simulator::RelayFiniteSteps(GraphKind::kStar, 16) == 2 &&
                      simulator::RelayFiniteSteps(GraphKind::kDoubleBinaryTree, 16) == 6;
  out.Add("relaysum.finite", finite ? 1 : 0,
          "exact mean after diameter steps: chain 15, star 2, double tree 6");
  double worst = 0, bytes = 0;
  for (const GraphKind tree :
       {GraphKind::kChain, GraphKind::kBinaryTree, GraphKind::kDoubleBinaryTree}) {
    const auto result = simulator::RunRelay({.tree = tree, .loss = 0.1, .seed = seed});
    worst = std::max(worst, result.distance);
    // Gossip sends one vector (10 float32) over each of the tree's 15 edges in both directions.
    bytes = std::max(bytes, result.bytes_per_step / (2.0 * 15 / 16 * 10 * 4));
  }
  out.Add("relaysum.loss10", worst, "reference 7e-18, deletion fallbacks 9e-3 to 7.9");
  out.Add("relaysum.bytes", bytes, "of gossip on the same tree");
}

void PowerGossip(uint64_t seed, uint64_t seeds, Figures& out) {
  double drift = 0;
  const auto floats = [&](simulator::MatrixKind kind, bool warm = true) {
    std::vector<double> drifts(seeds);
    const double mean = MeanOverSeeds(seed, seeds, [&](uint64_t s) {
      const auto result =
          simulator::RunPowerConsensus({.matrices = kind, .warm = warm, .seed = s}, 1e-4, 20'000);
      drifts[s - seed] = result.mean_drift;
      // A run that does not reach the target spoils the mean visibly.
      return result.reached ? result.floats : 1e9;
    });
    drift = std::max(drift, *std::max_element(drifts.begin(), drifts.end()));
    return mean;
  };
  out.Add("powergossip.floats", floats(simulator::MatrixKind::kRankOne),
          "ring of 8, rank-1 data, to 1e-4; plain gossip 380k, reference 26.6k, bound 40k");
  out.Add("powergossip.floats.decaying", floats(simulator::MatrixKind::kDecaying),
          "the same, singular values .7^k; reference 179k");
  out.Add("powergossip.floats.normal", floats(simulator::MatrixKind::kNormal),
          "the same, normal values: the worst case; reference 333k");
  out.Add("powergossip.floats.cold", floats(simulator::MatrixKind::kRankOne, false),
          "rank-1 data, factors drawn anew in each iteration");
  out.Add("powergossip.floats.cold.decaying", floats(simulator::MatrixKind::kDecaying, false),
          "the same, singular values .7^k");
  out.Add("powergossip.floats.cold.normal", floats(simulator::MatrixKind::kNormal, false),
          "the same, normal values");
  out.Add("powergossip.mean", drift, "largest change of the mean, relative; bound 1e-14");
  int graphs = 0;
  for (const GraphKind graph :
       {GraphKind::kRing, GraphKind::kTorus, GraphKind::kChain, GraphKind::kBinaryTree}) {
    graphs += simulator::RunPowerConsensus({.graph = graph,
                                            .n = 16,
                                            .shape = {24, 16},
                                            .matrices = simulator::MatrixKind::kNormal,
                                            .seed = seed},
                                           1e-4, 50'000)
                  .reached;
  }
  out.Add("powergossip.graphs", graphs, "of ring, torus, chain and tree of 16 reach 1e-4; bound 4");
  out.Add("powergossip.null",
          MeanOverSeeds(seed, seeds,
                        [](uint64_t s) {
                          return simulator::SpreadAfterConsensus(worker::NullColumns::kKeep, s) /
                                 simulator::SpreadAfterConsensus(worker::NullColumns::kOverwrite,
                                                                 s);
                        }),
          "spread with the rule for null columns / without; bound .1");
}

void Ist(uint64_t seed, uint64_t seeds, Figures& out) {
  out.Add("ist.bitwise", bench::IstBitsComeBack(seed, static_cast<int>(100 * seeds)) ? 1 : 0,
          "gather, scatter and exchange keep bits: 1 to 64 members, any shares; bound 1");
  out.Add("ist.single", bench::IstOfOneIsPlain(seed) ? 1 : 0,
          "one worker is plain SGD, momentum, Adam to the bit; bound 1");
  struct Row {
    const char* name;
    std::vector<size_t> hidden;
    const char* anchors[3];  // n = 2, 4, 8
  };
  const Row rows[] = {
      {"1hidden",
       {512},
       {"bytes of a ring's, digits, width 512; all-gather of subnets .500",
        "the same; .500; bound .55", "the same; .502"}},
      {"2hidden",
       {512, 512},
       {"the same, two hidden layers; .282", "the same; .172; bound .25", "the same; .118"}},
      {"2hidden.narrow",
       {64, 64},
       {"the same, widths 64, 64: most of the model is no inner matrix", "the same", "the same"}}};
  for (const Row& row : rows) {
    for (size_t i = 0; i < 3; ++i) {
      // A ring all-reduce of whole models is what the bytes are compared with.
      const size_t n = size_t{2} << i;
      out.Add(std::string("ist.bytes.") + row.name + ".n" + std::to_string(n),
              bench::IstShareOfRing(row.hidden, n, seed), row.anchors[i]);
    }
  }
  for (const uint32_t n : {2U, 4U, 8U}) {
    const auto accuracy = [&](bench::Cut cut) {
      return MeanOverSeeds(seed, seeds, [&](uint64_t s) {
        return bench::RunIstDigits({.cut = cut, .workers = n, .seed = s}).accuracy;
      });
    };
    // Both train the same steps at the same learning rate: only the cut differs.
    out.Add("ist.digits.n" + std::to_string(n),
            accuracy(bench::Cut::kWhole) - accuracy(bench::Cut::kSubnets),
            "points below local SGD at equal steps and learning rate, digits, widths 128, 128");
  }
}

void Outer(uint64_t seed, uint64_t seeds, Figures& out) {
  using worker::OuterKind;
  // Float32 in the job, doubles beside it: the rounding of some hundred local steps.
  constexpr double kRounding = 1e-5;
  constexpr size_t kMinAverages = 20;
  double worst = 0;
  bool identity = true, enough = true;
  for (uint64_t s = seed; s < seed + seeds; ++s) {
    for (const OuterKind kind : {OuterKind::kSgd, OuterKind::kNesterov}) {
      const auto off_line = simulator::CompareWithDiLoCo({.outer = {kind, 0.7, 0.9}, .seed = s});
      const auto plain = simulator::CompareWithMeans({.outer = {kind, 1, 0}, .seed = s});
      worst = std::max(worst, off_line.error);
      identity = identity && plain.bit_equal;
      enough = enough && std::min(off_line.averages, plain.averages) >= kMinAverages;
    }
  }
  out.Add("outer.identity", identity && enough ? 1 : 0,
          "learning rate 1, momentum 0: a job's averages are the plain ones to the bit; bound 1");
  out.Add("outer.diloco", worst <= kRounding && enough ? 1 : 0,
          "a job's averages are those of DiLoCo computed off line; bound 1");
  out.Add("outer.diloco.error", worst, "the largest difference, relative");
}

void Gradients(uint64_t seed, uint64_t seeds, Figures& out) {
  double worst = 0;
  bool bits = true;
  for (uint64_t s = seed; s < seed + seeds; ++s) {
    const bench::GradientsJob job{.seed = s};
    const bench::GradientsComparison run = bench::CompareWithLargeBatch(job);
    // A job that takes too few steps is as far off as can be said.
    worst = std::max(worst, run.steps >= job.steps ? run.difference : 1e9);
    bits = bits && run.bit_equal;
  }
  out.Add("gradients.equal", worst,
          "gradients averaged, 8 workers, SGD, 200 steps: parameters against one process with the "
          "large batch, relative; bound 1e-5");
  out.Add("gradients.bits", bits ? 1 : 0, "the same: equal bits at all workers; bound 1");
}

void Int8(uint64_t seed, size_t deaths, uint64_t seeds, Figures& out) {
  const bench::Int8Bits bits = bench::Int8BitsOf(seed, deaths);
  out.Add("int8.bits", bits.equal ? 1 : 0,
          "all members have the same bits after each averaging, while members die; bound 1");
  out.Add("int8.bits.deaths", static_cast<double>(bits.deaths), "in those jobs");
  out.Add("int8.bits.rounds", static_cast<double>(bits.rounds),
          "averagings of changes in which one died, at the others");
  out.Add("int8.bits.compared", static_cast<double>(bits.compared), "results and fetched bases");
  std::vector<double> above(seeds);
  const double exact = MeanOverSeeds(seed, seeds, [&](uint64_t s) {
    const double loss = bench::LossOnDigits(worker::WireFormat::kFloat32, s);
    above[s - seed] = bench::LossOnDigits(worker::WireFormat::kInt8, s) - loss;
    return loss;
  });
  const bench::Estimate mean = bench::MeanOf(above);
  out.Add("int8.loss", 100 * mean.value / exact,
          "percent above the final loss of float32, mean over seeds; bound 1");
  out.Add("int8.loss.error", 100 * mean.error / exact, "its standard error");
  out.Add("int8.loss.float32", exact, "nats, held out: digits, eight workers");
}

// The greatest distance over seeds; a job that did not come together is as far off as can be said.
double WorstDescent(worker::StrategyKind strategy, const std::vector<GraphKind>& graphs,
                    uint64_t seed, uint64_t seeds) {
  double worst = 0;
  for (const GraphKind graph : graphs) {
    std::vector<double> distances(seeds);
    // MeanOverSeeds for its two threads alone; the mean of distances says nothing.
    MeanOverSeeds(seed, seeds, [&](uint64_t s) {
      simulator::DescentOptions options;
      options.averaging = simulator::DescentAveraging(strategy, graph);
      options.seed = s;
      const simulator::DescentResult result = simulator::RunDescent(options);
      return distances[s - seed] = result.together ? std::min(result.distance, 1e9) : 1e9;
    });
    worst = std::max(worst, *std::max_element(distances.begin(), distances.end()));
  }
  return worst;
}

void Chaos(uint64_t seed, uint64_t seeds, Figures& out) {
  out.Add("chaos.RelaySum",
          WorstDescent(worker::StrategyKind::kRelaySum,
                       {GraphKind::kDoubleBinaryTree, GraphKind::kChain}, seed, seeds),
          "16 less 3 and 2 more: distance to the optimum of who is left, bound 1e-6");
  out.Add("chaos.Moshpit",
          WorstDescent(worker::StrategyKind::kMoshpit, {GraphKind::kComplete}, seed, seeds),
          "the same");
}

// Mean squared distance to the optimum, at a job that is together and has one factor everywhere.
double RelayDistance(const simulator::DescentOptions& options) {
  const simulator::DescentResult result = simulator::RunDescent(options);
  const auto [least, most] = std::minmax_element(result.lr_scales.begin(), result.lr_scales.end());
  return result.together && *least == *most ? std::min(result.mean_square, 1e9) : 1e9;
}

void RelayJobs(uint64_t seed, uint64_t seeds, Figures& out) {
  struct Row {
    const char* key;
    double speeds, rates;  // spread
    const char* anchor;
  };
  const Row rows[] = {
      {"relaysum.delayed", 0, 0,
       "chain of 16, default settings, equal rates: mean squared distance; bound 1e-12"},
      {"relaysum.delayed.speeds", .1, 0, "the same, steps of which some take 10 % longer"},
      {"relaysum.delayed.rates", 0, .1, "the same, learning rates that differ by 10 %"}};
  for (const Row& row : rows) {
    std::vector<double> distances(seeds);
    MeanOverSeeds(seed, seeds, [&](uint64_t s) {
      simulator::DescentOptions options = simulator::RelayDescent(s);
      options.speed_spread = row.speeds;
      options.rate_spread = row.rates;
      return distances[s - seed] = RelayDistance(options);
    });
    out.Add(row.key, *std::max_element(distances.begin(), distances.end()), row.anchor);
  }
}

// Points of held-out accuracy below all-reduce on label-sorted digits; negative: above.
void NonIid(uint64_t seed, uint64_t seeds, Figures& out) {
  const auto accuracy = [&](bench::Mixer mixer, GraphKind graph) {
    return MeanOverSeeds(seed, seeds, [&](uint64_t s) {
      return bench::LabelSortedAccuracy({.mixer = mixer, .graph = graph, .seed = s});
    });
  };
  const double exact = accuracy(bench::Mixer::kAllReduce, GraphKind::kComplete);
  out.Add("relaysum.noniid",
          exact - accuracy(bench::Mixer::kRelaySum, GraphKind::kDoubleBinaryTree),
          "points below all-reduce, label-sorted digits, 16 workers; bound 1");
  out.Add("relaysum.noniid.gossip", exact - accuracy(bench::Mixer::kGossip, GraphKind::kRing),
          "the same of gossip on a ring; published 27 to 33");
}

int Main(int argc, char** argv) {
  CLI::App app("Convergence of the strategies' own arithmetic");
  bool json = false, brief = false;
  std::string only;
  uint64_t seed = 1, seeds = 1000;
  app.add_flag("--json", json, "flat JSON, keys as in the issue");
  app.add_flag("--short", brief, "a tenth of the seeds");
  app.add_option("--seed", seed, "first seed")->capture_default_str();
  app.add_option("--only", only, "one part")
      ->check(CLI::IsMember({"moshpit", "a2cid2", "relaysum", "powergossip", "ist", "outer",
                             "gradients", "int8", "chaos", "relayjobs", "noniid", "ring16",
                             "pairrate"}));
  CLI11_PARSE(app, argc, argv);
  if (brief) seeds = 100;
  Figures figures;
  figures.quiet = json;
  const auto part = [&](const char* name, auto run, auto... arguments) {
    if (only.empty() || only == name) run(seed, arguments..., figures);
  };
  part("moshpit", Moshpit, seeds);
  part("moshpit", MoshpitsOthers, seeds);
  // A run of these costs far more than an averaging: fewer seeds.
  part("a2cid2", bench::A2CiD2, seeds / 10);
  part("relaysum", RelaySum);
  part("powergossip", PowerGossip, brief ? 2 : 5);
  part("ist", Ist, brief ? 2 : 6);
  part("outer", Outer, brief ? 2 : 5);
  part("gradients", Gradients, brief ? 2 : 5);
  part("int8", Int8, brief ? 200 : 1000, brief ? 10 : 40);
  part("chaos", Chaos, brief ? 2 : 10);
  part("relayjobs", RelayJobs, brief ? 2 : 10);
  part("noniid", NonIid, brief ? 1 : 4);
  part("ring16", bench::Ring16, brief ? 2 : 6);
  part("pairrate", bench::PairRate, brief ? 2 : 4);
  figures.Add("seed", static_cast<double>(seed), "");
  if (json) std::printf("%s\n", nlohmann::json(figures.values).dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace crowdsurf

int main(int argc, char** argv) { return crowdsurf::Main(argc, argv); }
