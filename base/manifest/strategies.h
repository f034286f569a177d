// What each strategy needs of a job, and which fields of spec.averaging do not act with it.
//
// The one definition of both. Admission refuses and warns by it (operator/core/job); agents bound
// their views and choose what trainers do by it (worker/core). Constants and pure functions, any
// thread. Source: docs/strategies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/manifest/spec_fields.h"

namespace crowdsurf::manifest {

struct Needs {
  std::string_view strategy = {};  // of averaging.strategy
  std::string_view mode = {};      // of averaging.gossip.mode; empty: the strategy has no modes
  std::string_view graph = {};  // the field below averaging that names its graph; empty: in groups
  int max_workers = static_cast<int>(kMaxReplicas);
  bool per_neighbour = false;     // something is kept for each neighbour
  bool strict_view = false;       // the view is renewed at every change of the members
  std::string_view overlap = {};  // what trainers do whatever averaging.overlap says; empty: that
  bool matrix_shapes = false;     // tensors need two axes: only an agent can check
  bool unit_groups = false;       // tensors need unit groups: only an agent can check
  // Copies of the model beside outbox and inboxes; pairs keep one more for each exchange at once.
  uint8_t extra_regions = 0;
};
inline constexpr Needs kNeeds[] = {
    {.strategy = "Moshpit"},
    {.strategy = "AllReduce", .max_workers = kMaxGroup},
    {.strategy = "Gossip",
     .mode = "Pairs",
     .graph = "gossip.graph",
     .max_workers = kMaxOnGraph,
     .strict_view = true,
     .extra_regions = 1},
    {.strategy = "Gossip",
     .mode = "Neighbours",
     .graph = "gossip.graph",
     .max_workers = kMaxOnGraph,
     .per_neighbour = true,
     .strict_view = true},
    {.strategy = "A2CiD2",
     .graph = "a2cid2.graph",
     .max_workers = kMaxOnGraph,
     .strict_view = true,
     .extra_regions = 2},
    {.strategy = "RelaySum",
     .graph = "relaySum.tree",
     .max_workers = kMaxOnGraph,
     .per_neighbour = true,
     .strict_view = true,
     .overlap = "Blocking"},
    {.strategy = "PowerGossip",
     .graph = "powerGossip.graph",
     .max_workers = kMaxOnGraph,
     .per_neighbour = true,
     .strict_view = true,
     .overlap = "Delayed",
     .matrix_shapes = true},
    {.strategy = "IST",
     .max_workers = kMaxGroup,
     .strict_view = true,
     .overlap = "Blocking",
     .unit_groups = true},
};

// The row of a strategy; `mode` counts where the strategy has modes. nullptr: there is none.
constexpr const Needs* FindNeeds(std::string_view strategy, std::string_view mode) {
  for (const Needs& needs : kNeeds) {
    if (needs.strategy == strategy && (needs.mode.empty() || needs.mode == mode)) return &needs;
  }
  return nullptr;
}

// How many workers a strategy can have on a graph of kGraphs ("" for a strategy in groups). Fewer
// than `min` do not make that graph.
struct WorkerRange {
  int min = 1;
  int max = 1;
};
WorkerRange WorkersOf(const Needs& needs, std::string_view graph);

// What a job asks of its strategy.
struct JobShape {
  std::string_view graph;   // "" for a strategy in groups
  int64_t max_workers = 1;  // spec.maxReplicas; 0 or less need no graph
  bool moments = false;     // spec.averaging.roles has OptimizerState
};
// A field below spec, and why the strategy cannot have it so.
struct UnmetNeed {
  std::string path;
  std::string problem;
};
// Every need that admission can know and the job does not meet. A graph that the text recommends is
// one that the strategy has at any size.
std::vector<UnmetNeed> UnmetNeeds(const Needs& needs, const JobShape& job);

// What a job with `what: Gradients` says elsewhere.
struct GradientsJob {
  std::string_view strategy;  // of averaging.strategy
  int64_t group_size = 0;     // of averaging.groupSize
  int64_t max_workers = 1;    // spec.maxReplicas; not known: 1
  bool global_batch = false;  // averaging.globalBatch is set
  bool blocking = false;      // averaging.overlap is Blocking
  bool outer = false;         // there is an outer optimizer
  bool other_roles = false;   // averaging.roles has more than Parameter
};
// Every reason why that job cannot average gradients (docs/gradients.md).
std::vector<UnmetNeed> UnmetByGradients(const GradientsJob& job);

// What a job with `compression: Int8` says elsewhere.
struct Int8Job {
  std::string_view strategy;  // of averaging.strategy
  int64_t group_size = 0;     // of averaging.groupSize
  int64_t max_workers = 1;    // spec.maxReplicas; not known: 1
  bool gradients = false;     // averaging.what is Gradients
};
// Every reason why that job cannot send changes as Int8 (docs/compression.md).
std::vector<UnmetNeed> UnmetByInt8(const Int8Job& job);

// What a job with `rounds: One` says elsewhere.
struct OneRoundJob {
  std::string_view strategy;  // of averaging.strategy
  bool outer = false;         // there is an outer optimizer
  bool int8 = false;          // averaging.compression is Int8
  bool gradients = false;     // averaging.what is Gradients
};
// Every reason why that job cannot make one round an averaging (docs/strategies/moshpit.md).
// Strategies other than Moshpit ignore the field.
std::vector<UnmetNeed> UnmetByOneRound(const OneRoundJob& job);

// How much of a field acts.
enum class Acts : uint8_t { kNot, kOnFullAverage };

// A field of spec.averaging that does not act, or not everywhere, where another one has a certain
// value.
struct IdleField {
  std::string_view where;  // the other one, below averaging
  std::string_view is;     // its values, separated by single spaces
  std::string_view field;  // below averaging
  std::string_view value;  // the value that does not act; empty: none does
  Acts acts;
  std::string_view why;  // a sentence whose subject is the value of `where`
};
inline constexpr std::string_view kOnGraphs = "Gossip A2CiD2 RelaySum PowerGossip";
inline constexpr IdleField kIdleFields[] = {
    {"strategy", "AllReduce", "groupSize", "", Acts::kNot, "has one group of all workers"},
    {"strategy", "AllReduce", "rounds", "", Acts::kNot, "has one round, of all workers"},
    {"strategy", "AllReduce", "grid", "", Acts::kNot, "has one group of all workers, and no grid"},
    {"strategy", kOnGraphs, "rounds", "", Acts::kNot, "mixes with neighbours, not in groups"},
    {"strategy", kOnGraphs, "grid", "", Acts::kNot, "mixes with neighbours, not in groups"},
    {"strategy", kOnGraphs, "groupSize", "", Acts::kOnFullAverage,
     "mixes with neighbours, not in groups"},
    {"strategy", kOnGraphs, "weighting", "", Acts::kOnFullAverage,
     "mixes with neighbours without weights"},
    {"strategy", "A2CiD2", "interval", "", Acts::kNot,
     "has a cadence of its own, a2cid2.rateCom pairings a step"},
    {"strategy", "RelaySum", "overlap", "Delayed", Acts::kNot,
     "waits for its average, which is local and exact only so"},
    {"strategy", "RelaySum", "compression", "", Acts::kOnFullAverage,
     "sends its sums in float32, because they grow with the number of workers"},
    {"strategy", "PowerGossip", "overlap", "Blocking", Acts::kNot,
     "adds its updates to what the trainer has by then, and nobody waits for neighbours"},
    {"strategy", "IST", "groupSize", "", Acts::kNot, "has one group of all workers"},
    {"strategy", "IST", "rounds", "", Acts::kNot, "has one round, of all workers"},
    {"strategy", "IST", "grid", "", Acts::kNot, "has one group of all workers, and no grid"},
    {"strategy", "IST", "overlap", "Delayed", Acts::kNot,
     "waits for its average, because each average deals the units anew"},
    {"what", "Gradients", "interval", "", Acts::kNot,
     "takes a step when globalBatch samples are gathered"},
    {"outerOptimizer.type", "None", "outerOptimizer.learningRate", "", Acts::kNot, "takes no step"},
    {"outerOptimizer.type", "None", "outerOptimizer.momentum", "", Acts::kNot, "takes no step"},
    {"outerOptimizer.type", "None", "outerOptimizer.warmupSamples", "", Acts::kNot,
     "takes no step"},
};
// "is ignored: AllReduce has one group of all workers". where_is: one of `is`.
std::string WhyIdle(const IdleField& field, std::string_view where_is);

}  // namespace crowdsurf::manifest
