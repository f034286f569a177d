// StrategyFactory: makes the strategy of a kind, as the manifest names it.
//
// Apart from strategy.h, so that a configuration can hold a factory without knowing what strategies
// do. Pure functions; any thread. Source: docs/strategies.
#pragma once

#include <functional>
#include <memory>

#include "base/rng.h"
#include "worker/core/view/averaging_choices.h"

namespace crowdsurf::worker {

class Strategy;
struct AveragingConfig;

// What opens rounds for that kind: for strategies on graphs Moshpit, which makes the full average
// that each of their views begins with. nullptr: that kind is not built; admission refuses it
// before this is asked.
std::unique_ptr<Strategy> MakeStrategy(StrategyKind kind, Rng rng);
using StrategyFactory = std::function<std::unique_ptr<Strategy>(StrategyKind, Rng)>;
StrategyFactory BuiltStrategies();  // MakeStrategy

// Pre: IsOnGraph(config.strategy).
std::unique_ptr<Strategy> MakeGraphStrategy(const AveragingConfig& config, Rng rng);

}  // namespace crowdsurf::worker
