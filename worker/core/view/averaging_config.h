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
#include "base/manifest/field_defaults.h"
#include "base/manifest/strategies.h"
#include "worker/core/view/averaging_choices.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::worker {

using manifest::ChoiceDefault;
using manifest::IntegerDefault;
using manifest::NumberDefault;

// Regions a strategy may have beyond the trainer's: a region's name is a byte, and a few are taken.
inline constexpr size_t kMaxExtraRegions = manifest::kMaxNeighbours;

struct Target {  // unset fields do not count; any one met ends the job
  std::optional<double> samples;
  std::optional<uint64_t> steps;
  std::optional<double> seconds;
  std::optional<std::string> metric;  // name, as the trainer reports it
  double metric_bound = 0;
  bool metric_below = true;
  bool operator==(const Target&) const = default;
};

// The block of the chosen strategy on a graph (spec.averaging.gossip, a2cid2, relaySum,
// powerGossip).
struct MixingConfig {
  // RelaySum: its tree.
  GraphKind graph = ChoiceDefault<GraphKind>("averaging.gossip.graph");
  GossipMode gossip = ChoiceDefault<GossipMode>("averaging.gossip.mode");
  // A2CiD2: pairings a gradient step.
  double rate_com = NumberDefault("averaging.a2cid2.rateCom");
  // RelaySum: tell the trainer the factor of its learning rate.
  bool lr_scale = ChoiceDefault<LrScale>("averaging.relaySum.lrScale") == LrScale::kAuto;
  // RelaySum: steps by which an edge may lag before this peer waits.
  uint16_t max_lag = IntegerDefault<uint16_t>("averaging.relaySum.maxLag");
  // PowerGossip: of the factors, at most that of the matrix.
  uint16_t rank = IntegerDefault<uint16_t>("averaging.powerGossip.rank");
  // PowerGossip: steps on each snapshot.
  uint16_t iterations = IntegerDefault<uint16_t>("averaging.powerGossip.iterations");
  // PowerGossip: steps from one that carries whole vectors to the next; 0: none does.
  uint64_t dense_every = IntegerDefault<uint64_t>("averaging.powerGossip.denseEvery");
  bool operator==(const MixingConfig&) const = default;
};

// Of spec.averaging.outerOptimizer: the step from one committed average to the next
// (docs/outer-optimizer.md).
struct OuterOptimizer {
  OuterKind kind = ChoiceDefault<OuterKind>("averaging.outerOptimizer.type");
  double learning_rate = NumberDefault("averaging.outerOptimizer.learningRate");
  double momentum = NumberDefault("averaging.outerOptimizer.momentum");
  // Of the job: until then all average every step, and no average is a step.
  uint64_t warmup_samples = IntegerDefault<uint64_t>("averaging.outerOptimizer.warmupSamples");
  bool operator==(const OuterOptimizer&) const = default;
};

struct AveragingConfig {
  uint64_t generation = 0;
  StrategyKind strategy = ChoiceDefault<StrategyKind>("averaging.strategy");
  uint16_t group_size = IntegerDefault<uint16_t>("averaging.groupSize");  // upper bound of a radix
  IntervalUnit interval_unit = IntervalUnit::kSteps;
  double interval = manifest::kDefaultIntervalSteps;  // in interval_unit, > 0
  WireFormat compression = ChoiceDefault<WireFormat>("averaging.compression");
  // As the manifest has it; OverlapOf is what acts.
  Overlap overlap = ChoiceDefault<Overlap>("averaging.overlap");
  RoundsMode rounds = ChoiceDefault<RoundsMode>("averaging.rounds");
  Weighting weighting = ChoiceDefault<Weighting>("averaging.weighting");
  GridMode grid = ChoiceDefault<GridMode>("averaging.grid");
  MixingConfig mixing;
  // Samples of a step, where gradients are averaged (docs/gradients.md); 0: parameters are.
  uint64_t global_batch = 0;
  OuterOptimizer outer;  // kind is kNone unless TakesOuterOptimizer(strategy)
  Target target;
  bool operator==(const AveragingConfig&) const = default;
};

// How whole values travel. Int8 is for changes alone: where there is no base yet, Float16 is used.
inline WireFormat WholeFormat(const AveragingConfig& config) {
  return config.compression == WireFormat::kInt8 ? WireFormat::kFloat16 : config.compression;
}

// What trainers really do while a snapshot is averaged. RelaySum waits whatever `overlap` says: its
// average is local and costs no network, and a gradient that is taken before it weighs curvatures
// wrongly, so that the optimum would not be the common one. PowerGossip never waits: its updates
// come from neighbours, and are added to what the trainer has by then.
Overlap OverlapOf(const AveragingConfig& config);

// spec.averaging.what: Gradients.
inline bool AveragesGradients(const AveragingConfig& config) { return config.global_batch > 0; }
// All have one base that they measure from, so one group must have all of them: groups that lose
// different members end one averaging with different averages.
inline bool NeedsOneGroup(const AveragingConfig& config) {
  return AveragesGradients(config) || config.compression == WireFormat::kInt8;
}

inline const manifest::Needs& NeedsOf(const AveragingConfig& config) {
  return NeedsOf(config.strategy, config.mixing.gossip);
}

void Encode(const AveragingConfig& config, ByteWriter& out);
std::optional<AveragingConfig> DecodeAveragingConfig(
    ByteReader& in);  // nullopt: garbled or out of bounds

}  // namespace crowdsurf::worker
