// DrawGraph: a strategy on a graph, its block, its graph and its switches, all from the seed.
#include <algorithm>
#include <iterator>

#include "base/rng.h"
#include "simulator/chaos/chaos_scenario.h"

namespace crowdsurf::simulator {
namespace {

using worker::GraphKind;
using worker::StrategyKind;

StrategyKind KindOf(std::string_view name) {
  if (name == "Gossip") return StrategyKind::kGossip;
  if (name == "A2CiD2") return StrategyKind::kA2CiD2;
  if (name == "RelaySum") return StrategyKind::kRelaySum;
  return StrategyKind::kPowerGossip;
}

template <size_t kSize>
GraphKind OneOf(Rng& rng, const GraphKind (&kinds)[kSize]) {
  return kinds[rng.Uniform(kSize)];
}

GraphKind GraphOf(StrategyKind kind, Rng& rng) {
  if (kind == StrategyKind::kRelaySum)
    return OneOf(rng, {GraphKind::kChain, GraphKind::kStar, GraphKind::kBinaryTree,
                       GraphKind::kDoubleBinaryTree});
  // Torus and Hypercube are Ring and Exponential for most numbers of workers.
  return OneOf(rng, {GraphKind::kRing, GraphKind::kChain, GraphKind::kStar, GraphKind::kBinaryTree,
                     GraphKind::kExponential, GraphKind::kBaseK, GraphKind::kComplete,
                     GraphKind::kTorus, GraphKind::kHypercube});
}

void DrawBlock(worker::AveragingConfig& config, Rng& rng) {
  config.mixing.graph = GraphOf(config.strategy, rng);
  if (rng.Bernoulli(0.5)) config.mixing.gossip = worker::GossipMode::kNeighbours;
  config.mixing.rate_com = 0.5 + 3.5 * rng.UniformDouble();
  config.mixing.max_lag = static_cast<uint16_t>(1 + rng.Uniform(4));
  config.mixing.rank = static_cast<uint16_t>(1 + rng.Uniform(2));
  config.mixing.iterations = static_cast<uint16_t>(1 + rng.Uniform(3));
  config.mixing.dense_every = rng.Bernoulli(0.3) ? 2 + rng.Uniform(3) : 0;
}

}  // namespace

bool DrawGraph(std::string_view strategy, ChaosScenario& scenario) {
  if (std::find(std::begin(kGraphStrategies), std::end(kGraphStrategies), strategy) ==
      std::end(kGraphStrategies))
    return false;
  Rng rng = Rng(scenario.seed).Fork("graph");
  GraphJob job;
  job.config.strategy = KindOf(strategy);
  job.config.compression = scenario.wire;
  DrawBlock(job.config, rng);
  // The checkers tell exchanges apart by their differences, and few values may be alike by chance.
  scenario.trainer.elements = std::max<uint32_t>(scenario.trainer.elements, 4);
  // Where neighbours mix, a step or a few lie between two exchanges.
  scenario.interval_steps = 1 + static_cast<double>(rng.Uniform(5));
  if (job.config.strategy == StrategyKind::kPowerGossip) {
    // One matrix that has factors, and a tensor that travels whole.
    const auto rows = static_cast<uint32_t>(4 + rng.Uniform(4));
    const auto cols = static_cast<uint32_t>(4 + rng.Uniform(4));
    job.tensors = {{0, {rows, cols}}, {uint64_t{rows} * cols, {2, 1}}};
    scenario.trainer.elements = rows * cols + 2;
    scenario.chunk_elements += 6;
  }
  // One job in three is switched to Moshpit, from it, or both.
  if (rng.Bernoulli(1.0 / 3)) {
    job.begins = rng.Bernoulli(0.5);
    for (uint64_t i = rng.Uniform(2) + 1; i > 0; --i)
      job.switches.push_back(scenario.heal * (0.9 * rng.UniformDouble()));
    std::sort(job.switches.begin(), job.switches.end());
  }
  scenario.graph = job;
  return true;
}

}  // namespace crowdsurf::simulator
