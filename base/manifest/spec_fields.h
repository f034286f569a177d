// The fields of a TrainingJob's spec, one row each: type, default, bounds, who may change it.
//
// The one place that knows them. The operator's validation, defaults and immutability, the CRD's
// schema, the page docs/manifest.md, and the agent's defaults and checks (field_defaults.h) are
// read off this table. Constants, any thread. A row's path is below `spec`; "[]" stands for an
// element of a list. Source: docs/manifest.md.
#pragma once

#include <string_view>

namespace crowdsurf::manifest {

enum class FieldKind {
  kObject,       // has rows of its own below it
  kList,         // of objects; rows below "path[]"; `max` bounds its length
  kInteger,      // bounds inclusive
  kNumber,       // bounds inclusive
  kBoolean,      //
  kString,       // `max` bounds its length
  kChoice,       // one of `choices`
  kChoiceList,   // several of `choices`
  kStringList,   // `max` bounds its length
  kIntegerList,  // `max` bounds its length, elements are exit codes 0..255
  kQuantity,     // a Kubernetes quantity: 2Gi, 500M, 1.5
  kOpaque        // anything: checked elsewhere
};

enum class MayChange { kYes, kNo, kOnlySuspended };

struct Field {
  std::string_view path;  // "averaging.interval.steps"
  FieldKind kind;
  MayChange may_change;
  std::string_view fallback = {};  // the default as JSON text; empty: none, or said in `note`
  double min = 0;
  double max = 0;
  std::string_view choices = {};  // names, separated by single spaces
  std::string_view built = {};    // those of `choices` that this version has; empty: all
  std::string_view note = {};     // a short sentence for the manual

  constexpr bool Allows(double value) const { return value >= min && value <= max; }
};

inline constexpr double kMaxReplicas = 100000;
inline constexpr double kMaxSeconds = 10 * 365.25 * 86400;  // ten years: a typo, not a wish
inline constexpr double kMaxCount = 9007199254740992;       // 2^53: every JSON reader holds it
inline constexpr double kMaxName = 253;                     // the longest name Kubernetes knows
inline constexpr int kMaxGroup = 64;        // members of one averaging group: masks of 64 bits
inline constexpr int kMaxOnGraph = 1024;    // members on a graph: a spectrum of more is too dear
inline constexpr int kMaxNeighbours = 250;  // of a member that keeps a copy of each one's model
inline constexpr int kDefaultIntervalSteps = 50;  // where averaging.interval is empty

// Strategies that take an outer optimizer: their members end an averaging with one base.
inline constexpr std::string_view kOuterStrategies = "Moshpit AllReduce";
// Those whose workers can all meet in one group: gradients and Int8 need it.
inline constexpr std::string_view kOneGroupStrategies = "Moshpit AllReduce";
// In the order of the agent's GraphKind.
inline constexpr std::string_view kGraphs =
    "Ring Chain Torus Star BinaryTree DoubleBinaryTree Exponential Hypercube Complete BaseK";

// A row of each kind, made of what the kind has.
namespace row {

using Words = std::string_view;
struct Range {
  double min, max;
};
struct Names {
  Words known;
  Words built = {};  // empty: all of them
};
using enum MayChange;

constexpr Field Object(Words path, MayChange may_change, Words note = {}) {
  return {.path = path, .kind = FieldKind::kObject, .may_change = may_change, .note = note};
}
constexpr Field Opaque(Words path, MayChange may_change, Words note = {}) {
  return {.path = path, .kind = FieldKind::kOpaque, .may_change = may_change, .note = note};
}
constexpr Field Boolean(Words path, MayChange may_change, Words fallback, Words note = {}) {
  return {path, FieldKind::kBoolean, may_change, fallback, 0, 0, {}, {}, note};
}
constexpr Field Quantity(Words path, MayChange may_change, Words fallback, Words note = {}) {
  return {path, FieldKind::kQuantity, may_change, fallback, 0, 0, {}, {}, note};
}
constexpr Field Integer(Words path, MayChange may_change, Words fallback, Range range,
                        Words note = {}) {
  return {path, FieldKind::kInteger, may_change, fallback, range.min, range.max, {}, {}, note};
}
constexpr Field Number(Words path, MayChange may_change, Words fallback, Range range,
                       Words note = {}) {
  return {path, FieldKind::kNumber, may_change, fallback, range.min, range.max, {}, {}, note};
}
constexpr Field Text(Words path, MayChange may_change, Words fallback, Range range,
                     Words note = {}) {
  return {path, FieldKind::kString, may_change, fallback, range.min, range.max, {}, {}, note};
}
constexpr Field List(Words path, MayChange may_change, Range size, Words note = {}) {
  return {path, FieldKind::kList, may_change, {}, size.min, size.max, {}, {}, note};
}
constexpr Field StringList(Words path, MayChange may_change, Range size, Words note = {}) {
  return {path, FieldKind::kStringList, may_change, {}, size.min, size.max, {}, {}, note};
}
constexpr Field IntegerList(Words path, MayChange may_change, Range size) {
  return {path, FieldKind::kIntegerList, may_change, {}, size.min, size.max};
}
constexpr Field Choice(Words path, MayChange may_change, Words fallback, Names names,
                       Words note = {}) {
  return {path, FieldKind::kChoice, may_change, fallback, 0, 0, names.known, names.built, note};
}
constexpr Field ChoiceList(Words path, MayChange may_change, Words fallback, Range size,
                           Words names) {
  return {path, FieldKind::kChoiceList, may_change, fallback, size.min, size.max, names};
}

// Every field, parents before children, in the order of the manual.
inline constexpr Field kSpec[] = {
    Integer("replicas", kYes, "1", {0, kMaxReplicas}, "workers wanted"),
    Integer("minReplicas", kYes, "0", {0, kMaxReplicas}, "Degraded below it"),
    Integer("maxReplicas", kYes, "", {0, kMaxReplicas}, "default: replicas"),
    Boolean("suspend", kYes, "false", "no pods while true"),
    Text("managedBy", kNo, "\"crowdsurf.io/operator\"", {1, 63}, "who reconciles"),
    Object("capacity", kYes, "what the workers run on"),
    Choice("capacity.type", kYes, "\"Spot\"", {"Spot OnDemand Any"}),
    Integer("capacity.onDemandBase", kYes, "0", {0, kMaxReplicas}, "first workers, on demand"),
    Integer("capacity.onDemandPercentageAboveBase", kYes, "0", {0, 100}),
    Object("capacity.fallback", kYes, "when spot has no room"),
    Integer("capacity.fallback.afterSeconds", kYes, "300", {0, kMaxSeconds}),
    Integer("capacity.fallback.maxOnDemand", kYes, "0", {0, kMaxReplicas}, "0: none"),
    Object("averaging", kYes, "how peers mix"),
    Choice("averaging.strategy", kYes, "\"Moshpit\"",
           {"Moshpit AllReduce Gossip A2CiD2 RelaySum PowerGossip IST"},
           "AllReduce and IST: at most 64 workers; on graphs: 1024"),
    Integer("averaging.groupSize", kYes, "16", {2, kMaxGroup}, "upper bound of a group"),
    Object("averaging.interval", kYes, "exactly one of the three; steps 50"),
    Integer("averaging.interval.steps", kYes, "", {1, kMaxCount}, "own steps"),
    Integer("averaging.interval.samples", kYes, "", {1, kMaxCount}, "own samples"),
    Number("averaging.interval.seconds", kYes, "", {0.01, kMaxSeconds}),
    Choice("averaging.compression", kYes, "\"Float16\"",
           {"None Float16 BFloat16 Int8 Int4", "None Float16 BFloat16 Int8"},
           "on the wire; Int8: one group of Moshpit or AllReduce"),
    Choice("averaging.what", kNo, "\"Parameters\"", {"Parameters Gradients"}),
    Integer("averaging.globalBatch", kNo, "", {1, kMaxCount},
            "samples of a step; with what: Gradients"),
    ChoiceList("averaging.roles", kNo, "[\"Parameter\"]", {1, 3},
               "Parameter OptimizerState Buffer"),
    Choice("averaging.overlap", kYes, "\"Delayed\"", {"Delayed Blocking"},
           "train while averaging, or wait"),
    Choice("averaging.rounds", kYes, "\"All\"", {"All One"},
           "All: d rounds, exact; One: one round, the axis rotates"),
    Choice("averaging.weighting", kYes, "\"Samples\"", {"Samples Equal"},
           "by samples, or all alike"),
    Choice("averaging.grid", kYes, "\"Fitted\"", {"Fitted Paper", "Fitted"}),
    Object("averaging.outerOptimizer", kYes, "on the averaged change; Moshpit, AllReduce"),
    Choice("averaging.outerOptimizer.type", kYes, "\"None\"", {"None SGD Nesterov"}),
    Number("averaging.outerOptimizer.learningRate", kYes, "0.7", {1e-9, 100}),
    Number("averaging.outerOptimizer.momentum", kYes, "0.9", {0, 1}),
    Integer("averaging.outerOptimizer.warmupSamples", kYes, "0", {0, kMaxCount},
            "of the job; until then plain averages, every step"),
    Object("averaging.gossip", kYes, "only with strategy Gossip"),
    Choice("averaging.gossip.graph", kYes, "\"Exponential\"", {kGraphs}),
    Choice("averaging.gossip.mode", kYes, "\"Pairs\"", {"Pairs Neighbours"}),
    Object("averaging.a2cid2", kYes, "only with strategy A2CiD2"),
    Choice("averaging.a2cid2.graph", kYes, "\"Ring\"", {kGraphs}),
    Number("averaging.a2cid2.rateCom", kYes, "1.0", {1e-3, 1000}, "pairings a gradient step"),
    Object("averaging.relaySum", kYes, "only with strategy RelaySum"),
    Choice("averaging.relaySum.tree", kYes, "\"DoubleBinaryTree\"",
           {"DoubleBinaryTree BinaryTree Chain Star"}),
    Choice("averaging.relaySum.lrScale", kYes, "\"Auto\"", {"Auto Off"}),
    Integer("averaging.relaySum.maxLag", kYes, "4", {1, 1024}),
    Object("averaging.powerGossip", kYes, "only with strategy PowerGossip"),
    Choice("averaging.powerGossip.graph", kYes, "\"Ring\"", {kGraphs}),
    Integer("averaging.powerGossip.rank", kYes, "1", {1, 64}, "at most the matrix's own acts"),
    Integer("averaging.powerGossip.iterations", kYes, "1", {1, 64}, "steps on each snapshot"),
    Integer("averaging.powerGossip.denseEvery", kYes, "0", {0, kMaxCount},
            "steps from one with whole vectors to the next; 0: none"),
    Object("averaging.ist", kYes, "only with strategy IST"),
    Choice("averaging.ist.store", kYes, "\"Replicated\"", {"Replicated Sharded", "Replicated"},
           "each worker holds the whole model"),
    Choice("averaging.ist.shares", kYes, "\"Equal\"", {"BySpeed Equal", "Equal"},
           "units of each worker"),
    Object("target", kYes, "at least one; the first that is met ends the job"),
    Integer("target.samples", kYes, "", {1, kMaxCount}, "of the whole job"),
    Integer("target.steps", kYes, "", {1, kMaxCount}, "of the fastest worker"),
    Number("target.seconds", kYes, "", {1, kMaxSeconds}, "since training began"),
    Object("target.metric", kYes, "what the trainers report"),
    Text("target.metric.name", kYes, "", {1, kMaxName}),
    Number("target.metric.below", kYes, "", {-kMaxCount, kMaxCount}, "below or above"),
    Number("target.metric.above", kYes, "", {-kMaxCount, kMaxCount}),
    Object("successPolicy", kNo),
    Choice("successPolicy.criterion", kNo, "\"TargetReached\"",
           {"TargetReached AllSucceeded AnySucceeded"}),
    Object("failurePolicy", kYes, "never sees disruptions"),
    List("failurePolicy.rules", kYes, {0, 20}, "the first that matches acts"),
    Text("failurePolicy.rules[].name", kYes, "", {1, 63}),
    Object("failurePolicy.rules[].onExitCodes", kYes, "this or onPodConditions"),
    Choice("failurePolicy.rules[].onExitCodes.operator", kYes, "\"In\"", {"In NotIn"}),
    IntegerList("failurePolicy.rules[].onExitCodes.values", kYes, {1, 255}),
    List("failurePolicy.rules[].onPodConditions", kYes, {1, 20}),
    Text("failurePolicy.rules[].onPodConditions[].type", kYes, "", {1, kMaxName}),
    Choice("failurePolicy.rules[].onPodConditions[].status", kYes, "\"True\"",
           {"True False Unknown"}),
    Choice("failurePolicy.rules[].action", kYes, "\"Count\"",
           {"FailJob ReplaceWorker Ignore Count"}),
    Object("runPolicy", kYes),
    Integer("runPolicy.backoffLimit", kYes, "6", {0, 1000}, "counted failures in a window"),
    Integer("runPolicy.failureWindowSeconds", kYes, "3600", {1, kMaxSeconds}),
    Integer("runPolicy.activeDeadlineSeconds", kYes, "", {1, kMaxSeconds}),
    Integer("runPolicy.startDeadlineSeconds", kYes, "86400", {1, kMaxSeconds},
            "until a first worker trains"),
    Integer("runPolicy.ttlSecondsAfterFinished", kYes, "", {0, kMaxSeconds}),
    Choice("runPolicy.cleanPodPolicy", kYes, "\"Running\"", {"Running All None"}),
    Object("disruption", kYes),
    Integer("disruption.graceSeconds", kYes, "25", {0, 3600}, "where the template is silent"),
    Integer("disruption.toleratedUnreachableSeconds", kYes, "30", {0, 86400}),
    Integer("disruption.forceDeleteAfterSeconds", kYes, "30", {0, 86400}, "after grace"),
    Object("disruption.podDisruptionBudget", kYes),
    Opaque("disruption.podDisruptionBudget.maxUnavailable", kYes, "a number or a percentage"),
    Boolean("disruption.doNotDisrupt", kYes, "false", "asks karpenter to wait"),
    Object("discovery", kYes),
    StringList("discovery.bootstrapPeers", kYes, {0, 32}, "host:port"),
    Object("checkpoint", kYes),
    Integer("checkpoint.intervalSeconds", kYes, "300", {1, kMaxSeconds}),
    Text("checkpoint.volume", kYes, "", {1, 63}, "a volume of the template, or uri"),
    Text("checkpoint.uri", kYes, "", {1, 2048}),
    Integer("checkpoint.retain", kYes, "3", {1, 1000}),
    Object("scheduling", kOnlySuspended),
    Text("scheduling.queueName", kOnlySuspended, "", {1, kMaxName}),
    Text("scheduling.priorityClassName", kOnlySuspended, "", {1, kMaxName}),
    Text("scheduling.schedulerName", kOnlySuspended, "", {1, kMaxName}),
    Integer("scheduling.gangMinimum", kOnlySuspended, "", {1, kMaxReplicas}),
    Object("network", kYes),
    Choice("network.policy", kYes, "\"None\"", {"Managed None"}),
    Boolean("network.podMonitor", kYes, "false"),
    Object("tls", kNo),
    Choice("tls.mode", kNo, "\"Required\"", {"Required Disabled"},
           "of tensors; control is always encrypted"),
    Text("tls.caSecretName", kNo, "", {1, kMaxName}, "a CA of the user's own"),
    Object("agent", kOnlySuspended),
    Text("agent.image", kOnlySuspended, "", {1, 1024}),
    Opaque("agent.resources", kOnlySuspended),
    Quantity("agent.sharedMemory", kOnlySuspended, "\"2Gi\"", "3 x the model"),
    Integer("agent.hangAfterSeconds", kOnlySuspended, "", {0, 604800},
            "without a step a trainer hangs; 0: never; default 300, on one machine 60"),
    Choice("agent.logLevel", kOnlySuspended, "\"info\"", {"debug info warning error"}),
    Opaque("template", kOnlySuspended, "an ordinary PodTemplateSpec"),
};

}  // namespace row

inline constexpr auto& kSpecFields = row::kSpec;

}  // namespace crowdsurf::manifest
