#include "worker/core/strategy.h"

#include "base/check.h"
#include "worker/core/a2cid2.h"
#include "worker/core/all_reduce.h"
#include "worker/core/gossip.h"
#include "worker/core/moshpit.h"
#include "worker/core/relay_sum.h"

namespace crowdsurf::worker {

std::unique_ptr<Strategy> MakeStrategy(StrategyKind kind, Rng) {
  switch (kind) {
    case StrategyKind::kMoshpit:
    case StrategyKind::kGossip:
    case StrategyKind::kA2CiD2:
    case StrategyKind::kRelaySum:
      return std::make_unique<Moshpit>();
    case StrategyKind::kAllReduce:
      return std::make_unique<AllReduce>();
    case StrategyKind::kPowerGossip:
    case StrategyKind::kIst:
      return nullptr;
  }
  return nullptr;
}

bool IsOnGraph(StrategyKind kind) {
  return kind == StrategyKind::kGossip || kind == StrategyKind::kA2CiD2 ||
         kind == StrategyKind::kRelaySum;
}

std::unique_ptr<Strategy> MakeGraphStrategy(const AveragingConfig& config, Rng rng) {
  if (config.strategy == StrategyKind::kA2CiD2) return std::make_unique<A2CiD2>(rng);
  if (config.strategy == StrategyKind::kRelaySum) return std::make_unique<RelaySum>();
  CHECK(config.strategy == StrategyKind::kGossip);
  if (config.mixing.gossip == GossipMode::kPairs) return std::make_unique<GossipPairs>(rng);
  return std::make_unique<GossipNeighbours>();
}

}  // namespace crowdsurf::worker
