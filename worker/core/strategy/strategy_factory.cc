#include "worker/core/strategy/strategy_factory.h"

#include "base/check.h"
#include "worker/core/strategy/a2cid2.h"
#include "worker/core/strategy/all_reduce.h"
#include "worker/core/strategy/gossip.h"
#include "worker/core/strategy/ist.h"
#include "worker/core/strategy/moshpit.h"
#include "worker/core/strategy/power_gossip.h"
#include "worker/core/strategy/relay_sum.h"

namespace crowdsurf::worker {

std::unique_ptr<Strategy> MakeStrategy(StrategyKind kind, Rng) {
  if (!IsBuilt(kind)) return nullptr;
  if (kind == StrategyKind::kAllReduce) return std::make_unique<AllReduce>();
  if (kind == StrategyKind::kIst) return std::make_unique<Ist>();
  return std::make_unique<Moshpit>();  // strategies on graphs have it for full averages
}

StrategyFactory BuiltStrategies() { return MakeStrategy; }

std::unique_ptr<Strategy> MakeGraphStrategy(const AveragingConfig& config, Rng rng) {
  if (config.strategy == StrategyKind::kA2CiD2) return std::make_unique<A2CiD2>(rng);
  if (config.strategy == StrategyKind::kRelaySum) return std::make_unique<RelaySum>();
  if (config.strategy == StrategyKind::kPowerGossip) return std::make_unique<PowerGossip>();
  CHECK(config.strategy == StrategyKind::kGossip);
  if (config.mixing.gossip == GossipMode::kPairs) return std::make_unique<GossipPairs>(rng);
  return std::make_unique<GossipNeighbours>();
}

}  // namespace crowdsurf::worker
