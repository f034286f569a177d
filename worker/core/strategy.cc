#include "worker/core/strategy.h"

#include "worker/core/all_reduce.h"
#include "worker/core/moshpit.h"

namespace crowdsurf::worker {

std::unique_ptr<Strategy> MakeStrategy(StrategyKind kind, Rng) {
  switch (kind) {
    case StrategyKind::kMoshpit:
      return std::make_unique<Moshpit>();
    case StrategyKind::kAllReduce:
      return std::make_unique<AllReduce>();
    case StrategyKind::kGossip:
    case StrategyKind::kA2CiD2:
    case StrategyKind::kRelaySum:
    case StrategyKind::kPowerGossip:
    case StrategyKind::kIst:
      return nullptr;
  }
  return nullptr;
}

}  // namespace crowdsurf::worker
