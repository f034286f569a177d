#include "base/manifest/fields.h"

#include <algorithm>
#include <array>
#include <string>

namespace crowdsurf::controller {
namespace {

using enum FieldKind;
using enum MayChange;

constexpr double kMaxReplicas = 100000;
constexpr double kMaxSeconds = 10 * 365.25 * 86400;  // ten years: a typo, not a wish
constexpr double kMaxCount = 9007199254740992;       // 2^53: what every JSON reader holds exactly
constexpr double kMaxName = 253;                     // the longest name Kubernetes knows

constexpr std::string_view kGraphs =
    "Ring Chain Torus Star BinaryTree DoubleBinaryTree Exponential Hypercube BaseK Complete";

constexpr Field kFields[] = {
    {"replicas", kInteger, kYes, "1", 0, kMaxReplicas, {}, {}, "workers wanted"},
    {"minReplicas", kInteger, kYes, "0", 0, kMaxReplicas, {}, {}, "Degraded below it"},
    {"maxReplicas", kInteger, kYes, "", 0, kMaxReplicas, {}, {}, "default: replicas"},
    {"suspend", kBoolean, kYes, "false", 0, 0, {}, {}, "no pods while true"},
    {"managedBy", kString, kNo, "\"crowdsurf.io/operator\"", 1, 63, {}, {}, "who reconciles"},
    {"capacity", kObject, kYes, "", 0, 0, {}, {}, "what the workers run on"},
    {"capacity.type", kChoice, kYes, "\"Spot\"", 0, 0, "Spot OnDemand Any", {}, ""},
    {"capacity.onDemandBase",
     kInteger,
     kYes,
     "0",
     0,
     kMaxReplicas,
     {},
     {},
     "first workers, on demand"},
    {"capacity.onDemandPercentageAboveBase", kInteger, kYes, "0", 0, 100, {}, {}, ""},
    {"capacity.fallback", kObject, kYes, "", 0, 0, {}, {}, "when spot has no room"},
    {"capacity.fallback.afterSeconds", kInteger, kYes, "300", 0, kMaxSeconds, {}, {}, ""},
    {"capacity.fallback.maxOnDemand", kInteger, kYes, "0", 0, kMaxReplicas, {}, {}, "0: none"},
    {"averaging", kObject, kYes, "", 0, 0, {}, {}, "how peers mix"},
    {"averaging.strategy", kChoice, kYes, "\"Moshpit\"", 0, 0,
     "Moshpit AllReduce Gossip A2CiD2 RelaySum PowerGossip IST",
     "Moshpit AllReduce Gossip A2CiD2 RelaySum", "AllReduce: at most 64 workers; on graphs: 1024"},
    {"averaging.groupSize", kInteger, kYes, "16", 2, 64, {}, {}, "upper bound of a group"},
    {"averaging.interval", kObject, kYes, "", 0, 0, {}, {}, "exactly one of the three; steps 50"},
    {"averaging.interval.steps", kInteger, kYes, "", 1, kMaxCount, {}, {}, "own steps"},
    {"averaging.interval.samples", kInteger, kYes, "", 1, kMaxCount, {}, {}, "own samples"},
    {"averaging.interval.seconds", kNumber, kYes, "", 0.01, kMaxSeconds, {}, {}, ""},
    {"averaging.compression", kChoice, kYes, "\"Float16\"", 0, 0, "None Float16 BFloat16 Int8 Int4",
     "None Float16 BFloat16", "on the wire"},
    {"averaging.what", kChoice, kNo, "\"Parameters\"", 0, 0, "Parameters Gradients", "Parameters",
     ""},
    {"averaging.globalBatch", kInteger, kNo, "", 1, kMaxCount, {}, {}, "with what: Gradients"},
    {"averaging.roles",
     kChoiceList,
     kNo,
     "[\"Parameter\"]",
     1,
     3,
     "Parameter OptimizerState Buffer",
     {},
     ""},
    {"averaging.overlap",
     kChoice,
     kYes,
     "\"Delayed\"",
     0,
     0,
     "Delayed Blocking",
     {},
     "train while averaging, or wait"},
    {"averaging.rounds", kChoice, kYes, "\"All\"", 0, 0, "All One", "All",
     "All: d rounds, exact; One: the axis rotates"},
    {"averaging.weighting",
     kChoice,
     kYes,
     "\"Samples\"",
     0,
     0,
     "Samples Equal",
     {},
     "by samples, or all alike"},
    {"averaging.grid", kChoice, kYes, "\"Fitted\"", 0, 0, "Fitted Paper", "Fitted", ""},
    {"averaging.outerOptimizer", kObject, kYes, "", 0, 0, {}, {}, "on the averaged change"},
    {"averaging.outerOptimizer.type", kChoice, kYes, "\"None\"", 0, 0, "None SGD Nesterov", "None",
     ""},
    {"averaging.outerOptimizer.learningRate", kNumber, kYes, "0.7", 1e-9, 100, {}, {}, ""},
    {"averaging.outerOptimizer.momentum", kNumber, kYes, "0.9", 0, 1, {}, {}, ""},
    {"averaging.gossip", kObject, kYes, "", 0, 0, {}, {}, "only with strategy Gossip"},
    {"averaging.gossip.graph", kChoice, kYes, "\"Exponential\"", 0, 0, kGraphs, {}, ""},
    {"averaging.gossip.mode", kChoice, kYes, "\"Pairs\"", 0, 0, "Pairs Neighbours", {}, ""},
    {"averaging.a2cid2", kObject, kYes, "", 0, 0, {}, {}, "only with strategy A2CiD2"},
    {"averaging.a2cid2.graph", kChoice, kYes, "\"Ring\"", 0, 0, kGraphs, {}, ""},
    {"averaging.a2cid2.rateCom",
     kNumber,
     kYes,
     "1.0",
     1e-3,
     1000,
     {},
     {},
     "pairings a gradient step"},
    {"averaging.relaySum", kObject, kYes, "", 0, 0, {}, {}, "only with strategy RelaySum"},
    {"averaging.relaySum.tree",
     kChoice,
     kYes,
     "\"DoubleBinaryTree\"",
     0,
     0,
     "DoubleBinaryTree BinaryTree Chain Star",
     {},
     ""},
    {"averaging.relaySum.lrScale", kChoice, kYes, "\"Auto\"", 0, 0, "Auto Off", {}, ""},
    {"averaging.relaySum.maxLag", kInteger, kYes, "4", 1, 1024, {}, {}, ""},
    {"averaging.powerGossip", kObject, kYes, "", 0, 0, {}, {}, "only with strategy PowerGossip"},
    {"averaging.powerGossip.graph", kChoice, kYes, "\"Ring\"", 0, 0, kGraphs, {}, ""},
    {"averaging.powerGossip.rank", kInteger, kYes, "1", 1, 64, {}, {}, ""},
    {"averaging.powerGossip.iterations", kInteger, kYes, "1", 1, 64, {}, {}, ""},
    {"averaging.powerGossip.denseEvery", kInteger, kYes, "0", 0, kMaxCount, {}, {}, "0: never"},
    {"averaging.ist", kObject, kYes, "", 0, 0, {}, {}, "only with strategy IST"},
    {"averaging.ist.localSteps", kInteger, kYes, "50", 1, kMaxCount, {}, {}, ""},
    {"averaging.ist.store", kChoice, kYes, "\"Replicated\"", 0, 0, "Replicated Sharded", {}, ""},
    {"averaging.ist.shares", kChoice, kYes, "\"BySpeed\"", 0, 0, "BySpeed Equal", {}, ""},
    {"target", kObject, kYes, "", 0, 0, {}, {}, "at least one; the first that is met ends the job"},
    {"target.samples", kInteger, kYes, "", 1, kMaxCount, {}, {}, "of the whole job"},
    {"target.steps", kInteger, kYes, "", 1, kMaxCount, {}, {}, "of the fastest worker"},
    {"target.seconds", kNumber, kYes, "", 1, kMaxSeconds, {}, {}, "since training began"},
    {"target.metric", kObject, kYes, "", 0, 0, {}, {}, "what the trainers report"},
    {"target.metric.name", kString, kYes, "", 1, kMaxName, {}, {}, ""},
    {"target.metric.below", kNumber, kYes, "", -kMaxCount, kMaxCount, {}, {}, "below or above"},
    {"target.metric.above", kNumber, kYes, "", -kMaxCount, kMaxCount, {}, {}, ""},
    {"successPolicy", kObject, kNo, "", 0, 0, {}, {}, ""},
    {"successPolicy.criterion",
     kChoice,
     kNo,
     "\"TargetReached\"",
     0,
     0,
     "TargetReached AllSucceeded AnySucceeded",
     {},
     ""},
    {"failurePolicy", kObject, kYes, "", 0, 0, {}, {}, "never sees disruptions"},
    {"failurePolicy.rules", kList, kYes, "", 0, 20, {}, {}, "the first that matches acts"},
    {"failurePolicy.rules[].name", kString, kYes, "", 1, 63, {}, {}, ""},
    {"failurePolicy.rules[].onExitCodes",
     kObject,
     kYes,
     "",
     0,
     0,
     {},
     {},
     "this or onPodConditions"},
    {"failurePolicy.rules[].onExitCodes.operator",
     kChoice,
     kYes,
     "\"In\"",
     0,
     0,
     "In NotIn",
     {},
     ""},
    {"failurePolicy.rules[].onExitCodes.values", kIntegerList, kYes, "", 1, 255, {}, {}, ""},
    {"failurePolicy.rules[].onPodConditions", kList, kYes, "", 1, 20, {}, {}, ""},
    {"failurePolicy.rules[].onPodConditions[].type", kString, kYes, "", 1, kMaxName, {}, {}, ""},
    {"failurePolicy.rules[].onPodConditions[].status",
     kChoice,
     kYes,
     "\"True\"",
     0,
     0,
     "True False Unknown",
     {},
     ""},
    {"failurePolicy.rules[].action",
     kChoice,
     kYes,
     "\"Count\"",
     0,
     0,
     "FailJob ReplaceWorker Ignore Count",
     {},
     ""},
    {"runPolicy", kObject, kYes, "", 0, 0, {}, {}, ""},
    {"runPolicy.backoffLimit",
     kInteger,
     kYes,
     "6",
     0,
     1000,
     {},
     {},
     "counted failures in a window"},
    {"runPolicy.failureWindowSeconds", kInteger, kYes, "3600", 1, kMaxSeconds, {}, {}, ""},
    {"runPolicy.activeDeadlineSeconds", kInteger, kYes, "", 1, kMaxSeconds, {}, {}, ""},
    {"runPolicy.startDeadlineSeconds", kInteger, kYes, "", 1, kMaxSeconds, {}, {}, ""},
    {"runPolicy.ttlSecondsAfterFinished", kInteger, kYes, "", 0, kMaxSeconds, {}, {}, ""},
    {"runPolicy.cleanPodPolicy", kChoice, kYes, "\"Running\"", 0, 0, "Running All None", {}, ""},
    {"disruption", kObject, kYes, "", 0, 0, {}, {}, ""},
    {"disruption.graceSeconds",
     kInteger,
     kYes,
     "25",
     0,
     3600,
     {},
     {},
     "where the template is silent"},
    {"disruption.toleratedUnreachableSeconds", kInteger, kYes, "30", 0, 86400, {}, {}, ""},
    {"disruption.forceDeleteAfterSeconds", kInteger, kYes, "30", 0, 86400, {}, {}, "after grace"},
    {"disruption.podDisruptionBudget", kObject, kYes, "", 0, 0, {}, {}, ""},
    {"disruption.podDisruptionBudget.maxUnavailable",
     kOpaque,
     kYes,
     "",
     0,
     0,
     {},
     {},
     "a number or a percentage"},
    {"disruption.doNotDisrupt", kBoolean, kYes, "false", 0, 0, {}, {}, "asks karpenter to wait"},
    {"discovery", kObject, kYes, "", 0, 0, {}, {}, ""},
    {"discovery.bootstrapPeers", kStringList, kYes, "", 0, 32, {}, {}, "host:port"},
    {"checkpoint", kObject, kYes, "", 0, 0, {}, {}, ""},
    {"checkpoint.intervalSeconds", kInteger, kYes, "300", 1, kMaxSeconds, {}, {}, ""},
    {"checkpoint.volume", kString, kYes, "", 1, 63, {}, {}, "a volume of the template, or uri"},
    {"checkpoint.uri", kString, kYes, "", 1, 2048, {}, {}, ""},
    {"checkpoint.retain", kInteger, kYes, "3", 1, 1000, {}, {}, ""},
    {"scheduling", kObject, kOnlySuspended, "", 0, 0, {}, {}, ""},
    {"scheduling.queueName", kString, kOnlySuspended, "", 1, kMaxName, {}, {}, ""},
    {"scheduling.priorityClassName", kString, kOnlySuspended, "", 1, kMaxName, {}, {}, ""},
    {"scheduling.schedulerName", kString, kOnlySuspended, "", 1, kMaxName, {}, {}, ""},
    {"scheduling.gangMinimum", kInteger, kOnlySuspended, "", 1, kMaxReplicas, {}, {}, ""},
    {"network", kObject, kYes, "", 0, 0, {}, {}, ""},
    {"network.policy", kChoice, kYes, "\"None\"", 0, 0, "Managed None", {}, ""},
    {"network.podMonitor", kBoolean, kYes, "false", 0, 0, {}, {}, ""},
    {"tls", kObject, kNo, "", 0, 0, {}, {}, ""},
    {"tls.mode", kChoice, kNo, "\"Required\"", 0, 0, "Required Disabled", "Required", ""},
    {"tls.caSecretName", kString, kNo, "", 1, kMaxName, {}, {}, "a CA of the user's own"},
    {"agent", kObject, kOnlySuspended, "", 0, 0, {}, {}, ""},
    {"agent.image", kString, kOnlySuspended, "", 1, 1024, {}, {}, ""},
    {"agent.resources", kOpaque, kOnlySuspended, "", 0, 0, {}, {}, ""},
    {"agent.sharedMemory", kQuantity, kOnlySuspended, "\"2Gi\"", 0, 0, {}, {}, "3 x the model"},
    {"agent.logLevel",
     kChoice,
     kOnlySuspended,
     "\"info\"",
     0,
     0,
     "debug info warning error",
     {},
     ""},
    {"template", kOpaque, kOnlySuspended, "", 0, 0, {}, {}, "an ordinary PodTemplateSpec"},
};

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Edit distance without regard to case. Names are short, so the quadratic table is fine; longer
// input (a hostile manifest) is cut off by the caller.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (Lower(a[i - 1]) == Lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Field> SpecFields() { return kFields; }

const Field* FindField(std::string_view path) {
  const auto it = std::find_if(std::begin(kFields), std::end(kFields),
                               [&](const Field& field) { return field.path == path; });
  return it == std::end(kFields) ? nullptr : &*it;
}

std::vector<std::string_view> ChildrenOf(std::string_view path) {
  const size_t skip = path.empty() ? 0 : path.size() + 1;
  std::vector<std::string_view> names;
  for (const Field& field : kFields) {
    if (field.path.size() <= skip || field.path.substr(0, path.size()) != path) continue;
    if (!path.empty() && field.path[path.size()] != '.') continue;
    const std::string_view rest = field.path.substr(skip);
    if (rest.find('.') == std::string_view::npos && rest.find('[') == std::string_view::npos) {
      names.push_back(rest);
    }
  }
  return names;
}

std::vector<std::string_view> SplitChoices(std::string_view choices) {
  std::vector<std::string_view> names;
  while (!choices.empty()) {
    const size_t end = std::min(choices.find(' '), choices.size());
    names.push_back(choices.substr(0, end));
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return names;
}

std::string_view NearestName(std::string_view name, std::span<const std::string_view> names) {
  constexpr size_t kLongestName = 64;  // of ours: 34; longer input is nobody's typo
  if (name.size() > kLongestName) return {};
  std::string_view best;
  size_t best_distance = kLongestName;
  for (const std::string_view candidate : names) {
    const size_t distance = Distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best_distance <= std::max<size_t>(1, best.size() / 3) ? best : std::string_view();
}

std::string WhyNotBuilt(const NotBuilt& field) {
  const std::string why = "is not built yet";
  return field.instead.empty() ? why : why + "; " + std::string(field.instead);
}

}  // namespace crowdsurf::controller
