// AveragingConfig: spec.averaging and spec.target as the view carries them (docs/manifest.md), with
// every default filled in.
//
// The agent reads it from its `config` file (edge); the steward puts the newest generation into the
// next view; only the view's copy acts. Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "worker/core/view/graph.h"

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
// Regions a strategy may have beyond the trainer's: a region's name is a byte, and a few are taken.
inline constexpr size_t kMaxExtraRegions = 250;
// Strategies on graphs mix all the time (mixing.h), not in averagings.
bool IsOnGraph(StrategyKind kind);
enum class WireFormat : uint8_t { kFloat32, kFloat16, kBFloat16 };  // spec: None, Float16, BFloat16
enum class Overlap : uint8_t { kDelayed, kBlocking };
enum class RoundsMode : uint8_t { kAll, kOne };
enum class Weighting : uint8_t { kSamples, kEqual };
enum class GridMode : uint8_t { kFitted, kPaper };
enum class IntervalUnit : uint8_t { kSteps, kSamples, kSeconds };

struct Target {  // unset fields do not count; any one met ends the job
  std::optional<double> samples;
  std::optional<uint64_t> steps;
  std::optional<double> seconds;
  std::optional<std::string> metric;  // name, as the trainer reports it
  double metric_bound = 0;
  bool metric_below = true;
  bool operator==(const Target&) const = default;
};

enum class GossipMode : uint8_t { kPairs, kNeighbours };

// The block of the chosen strategy on a graph (spec.averaging.gossip, a2cid2, relaySum).
struct MixingConfig {
  GraphKind graph = GraphKind::kExponential;  // RelaySum: its tree
  GossipMode gossip = GossipMode::kPairs;
  double rate_com = 1;   // A2CiD2: pairings a gradient step, 1e-3..1e3
  bool lr_scale = true;  // RelaySum: tell the trainer the factor of its learning rate
  uint16_t max_lag = 4;  // RelaySum: steps by which an edge may lag before this peer waits, 1..1024
  bool operator==(const MixingConfig&) const = default;
};

struct AveragingConfig {
  uint64_t generation = 0;
  StrategyKind strategy = StrategyKind::kMoshpit;
  uint16_t group_size = 16;  // 2..64: upper bound of a radix
  IntervalUnit interval_unit = IntervalUnit::kSteps;
  double interval = 50;  // in interval_unit, > 0
  WireFormat compression = WireFormat::kFloat16;
  Overlap overlap = Overlap::kDelayed;  // as the manifest has it; OverlapOf is what acts
  RoundsMode rounds = RoundsMode::kAll;
  Weighting weighting = Weighting::kSamples;
  GridMode grid = GridMode::kFitted;
  MixingConfig mixing;
  Target target;
  bool operator==(const AveragingConfig&) const = default;
};

// What trainers really do while a snapshot is averaged. RelaySum waits whatever `overlap` says: its
// average is local and costs no network, and a gradient that is taken before it weighs curvatures
// wrongly, so that the optimum would not be the common one.
constexpr Overlap OverlapOf(const AveragingConfig& config) {
  return config.strategy == StrategyKind::kRelaySum ? Overlap::kBlocking : config.overlap;
}

void Encode(const AveragingConfig& config, ByteWriter& out);
std::optional<AveragingConfig> DecodeAveragingConfig(
    ByteReader& in);  // nullopt: garbled or out of bounds

}  // namespace crowdsurf::worker
