#include "base/manifest/strategies.h"

#include <algorithm>

#include "base/manifest/field_defaults.h"
#include "base/manifest/fields.h"

namespace crowdsurf::manifest {
namespace {

// In these graphs all others can be a worker's neighbours.
constexpr std::string_view kHubs[] = {"Complete", "Star"};
constexpr int kMinTorus = 9;  // three rows of three

// The default of the strategy's graph, which any number of workers can form with few neighbours.
std::string DefaultGraph(const Needs& needs) {
  return std::string(TextDefaultOf(*FindField("averaging." + std::string(needs.graph))));
}

// Why the strategy ends where it does.
std::string WhyNotMore(const Needs& needs) {
  const std::string name(needs.strategy);
  return needs.graph.empty() ? "strategy " + name + " can hold in its one group"
                             : name + " can hold on its graph";
}

}  // namespace

WorkerRange WorkersOf(const Needs& needs, std::string_view graph) {
  WorkerRange range{.min = 1, .max = needs.max_workers};
  if (needs.graph.empty()) return range;
  if (graph == "Torus") range.min = kMinTorus;
  if (needs.per_neighbour && std::ranges::count(kHubs, graph) != 0)
    range.max = std::min(range.max, kMaxNeighbours);
  return range;
}

std::vector<UnmetNeed> UnmetNeeds(const Needs& needs, const JobShape& job) {
  std::vector<UnmetNeed> unmet;
  const WorkerRange range = WorkersOf(needs, job.graph);
  const std::string workers = std::to_string(job.max_workers);
  const std::string path = "averaging." + std::string(needs.graph);
  const std::string graph(job.graph);
  // Above kMaxReplicas the field's own row refuses.
  if (job.max_workers > needs.max_workers && needs.max_workers < kMaxReplicas) {
    unmet.push_back({"maxReplicas", workers + " is above " + std::to_string(needs.max_workers) +
                                        ", the most that " + WhyNotMore(needs) +
                                        "; Moshpit has no such limit"});
  }
  if (range.max < needs.max_workers && job.max_workers > range.max) {
    unmet.push_back({path, graph + " of " + workers + " workers is above " +
                               std::to_string(range.max) + ": a worker keeps something for each " +
                               "neighbour, and all others can be its neighbours; " +
                               DefaultGraph(needs) + " has few at any size"});
  }
  if (job.max_workers > 0 && job.max_workers < range.min) {
    unmet.push_back({path, graph + " needs at least " + std::to_string(range.min) +
                               " workers, this job has " + workers + " at most; " +
                               DefaultGraph(needs) + " fits any number"});
  }
  if (needs.unit_groups && job.moments) {
    unmet.push_back({"averaging.roles",
                     "OptimizerState cannot be averaged with " + std::string(needs.strategy) +
                         ": a worker's optimizer has moments of its own units only, and starts "
                         "anew at each average"});
  }
  return unmet;
}

namespace {

// Why all workers of a job do not meet in one group; empty: they do.
std::string WhyNotOneGroup(const std::string& strategy, int64_t group_size, int64_t max_workers) {
  const std::string needs = "needs one group of all workers";
  if (IndexOf(strategy, kOneGroupStrategies) < 0)
    return needs + "; " + strategy + " has none, " + ListOfChoices(kOneGroupStrategies) + " can";
  if (strategy != "Moshpit" || max_workers <= group_size) return {};
  return needs + ": maxReplicas " + std::to_string(max_workers) + " is above groupSize " +
         std::to_string(group_size);
}

}  // namespace

std::vector<UnmetNeed> UnmetByGradients(const GradientsJob& job) {
  std::vector<UnmetNeed> unmet;
  const std::string strategy(job.strategy);
  if (!job.global_batch)
    unmet.push_back({"averaging.globalBatch",
                     "is missing: what: Gradients takes a step when so "
                     "many samples are gathered"});
  if (!job.blocking)
    unmet.push_back({"averaging.overlap",
                     "must be Blocking with what: Gradients: a gradient is of the parameters that "
                     "the last step made"});
  if (const std::string why = WhyNotOneGroup(strategy, job.group_size, job.max_workers);
      !why.empty())
    unmet.push_back({"averaging.what", "Gradients " + why});
  if (job.outer)
    unmet.push_back({"averaging.outerOptimizer.type",
                     "must be None with what: Gradients: the trainer's optimizer makes the step"});
  if (job.other_roles)
    unmet.push_back({"averaging.roles",
                     "must be [Parameter] with what: Gradients: gradients are "
                     "of parameters, and optimizers are equal anyway"});
  return unmet;
}

std::vector<UnmetNeed> UnmetByInt8(const Int8Job& job) {
  std::vector<UnmetNeed> unmet;
  if (const std::string why =
          WhyNotOneGroup(std::string(job.strategy), job.group_size, job.max_workers);
      !why.empty())
    unmet.push_back({"averaging.compression", "Int8 " + why});
  if (job.gradients)
    unmet.push_back({"averaging.compression",
                     "Int8 sends changes of parameters; with what: Gradients choose None, Float16 "
                     "or BFloat16"});
  return unmet;
}

std::vector<UnmetNeed> UnmetByOneRound(const OneRoundJob& job) {
  std::vector<UnmetNeed> unmet;
  if (job.strategy != "Moshpit") return unmet;
  const auto refuse = [&](bool wanted, const std::string& by, const std::string& what) {
    if (wanted)
      unmet.push_back({"averaging.rounds", "One leaves groups with values of their own, and " + by +
                                               " " + what +
                                               " from one base of all workers: choose All"});
  };
  refuse(job.outer, "an outerOptimizer", "steps");
  refuse(job.int8, "compression: Int8", "sends changes");
  refuse(job.gradients, "what: Gradients", "steps");
  return unmet;
}

std::string WhyIdle(const IdleField& field, std::string_view where_is) {
  const std::string effect = field.acts == Acts::kOnFullAverage
                                 ? "acts only on the full average of each view: "
                                 : "is ignored: ";
  return effect + std::string(where_is) + " " + std::string(field.why);
}

}  // namespace crowdsurf::manifest
