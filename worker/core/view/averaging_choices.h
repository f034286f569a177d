// The choices of spec.averaging: enumerations, and what follows from a choice alone.
//
// Enumerators stand in the order of the manifest's choices (base/manifest/spec_fields.h). Values;
// any thread. Source: docs/manifest.md.
#pragma once

#include <cstdint>

namespace crowdsurf::manifest {
struct Needs;
}

namespace crowdsurf::worker {

enum class StrategyKind : uint8_t {
  kMoshpit,
  kAllReduce,
  kGossip,
  kA2CiD2,
  kRelaySum,
  kPowerGossip,
  kIst
};
// Whether agents have the strategy: the others pass the schema and are refused at admission.
bool IsBuilt(StrategyKind kind);
// spec: None, Float16, BFloat16, Int8. kInt8 is for changes from a base, never for whole values.
enum class WireFormat : uint8_t { kFloat32, kFloat16, kBFloat16, kInt8 };
enum class Overlap : uint8_t { kDelayed, kBlocking };
enum class RoundsMode : uint8_t { kAll, kOne };
enum class Weighting : uint8_t { kSamples, kEqual };
enum class GridMode : uint8_t { kFitted, kPaper };
enum class IntervalUnit : uint8_t { kSteps, kSamples, kSeconds };
enum class GossipMode : uint8_t { kPairs, kNeighbours };
// What the strategy needs, as admission checks it; the mode counts for Gossip alone.
const manifest::Needs& NeedsOf(StrategyKind kind, GossipMode mode = GossipMode::kPairs);
// Strategies on graphs mix all the time (mixing.h), not in averagings.
bool IsOnGraph(StrategyKind kind);
enum class LrScale : uint8_t { kAuto, kOff };
enum class OuterKind : uint8_t { kNone, kSgd, kNesterov };
// An outer optimizer needs one base at all members (manifest::kOuterStrategies).
bool TakesOuterOptimizer(StrategyKind kind);

}  // namespace crowdsurf::worker
