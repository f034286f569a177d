// Rules in CEL of a TrainingJob's spec: what no single field can say.
#include "operator/core/job/crd_rules.h"

#include <string>

#include "base/manifest/fields.h"
#include "operator/core/job/validate.h"

namespace crowdsurf::controller {

using manifest::FieldKind;
using manifest::FindField;
using manifest::kNotBuilt;
using manifest::NotBuilt;
using nlohmann::json;

json CrdRule(const std::string& rule, const std::string& message) {
  return {{"rule", rule}, {"message", message}};
}

namespace {

// Strategies with one group of all workers.
void AddGroupRules(json& rules) {
  const std::string most = std::to_string(manifest::kMaxGroup);
  for (const std::string name : {"AllReduce", "IST"}) {
    rules.push_back(CrdRule(
        "!has(self.averaging) || self.averaging.strategy != '" + name +
            "' || (has(self.maxReplicas) ? self.maxReplicas : self.replicas) <= " + most,
        name + " holds at most " + most + " workers in its one group; Moshpit has no such limit"));
  }
  rules.push_back(CrdRule(
      "!has(self.averaging) || self.averaging.what != 'Gradients' || "
      "self.averaging.strategy != 'Moshpit' || "
      "(has(self.maxReplicas) ? self.maxReplicas : self.replicas) <= self.averaging.groupSize",
      "what: Gradients needs one group of all workers: maxReplicas is above averaging.groupSize"));
  rules.push_back(CrdRule(
      "!has(self.averaging) || !has(self.averaging.compression) || "
      "self.averaging.compression != 'Int8' || self.averaging.strategy != 'Moshpit' || "
      "(has(self.maxReplicas) ? self.maxReplicas : self.replicas) <= self.averaging.groupSize",
      "compression: Int8 needs one group of all workers: maxReplicas is above "
      "averaging.groupSize"));
}

void AddAveragingRules(json& averaging) {
  for (const auto& [block, owner] : manifest::kStrategyBlocks) {
    averaging["x-kubernetes-validations"].push_back(CrdRule(
        "!has(self." + std::string(block) + ") || self.strategy == '" + std::string(owner) + "'",
        std::string(block) + " is only for strategy " + std::string(owner)));
  }
  averaging["x-kubernetes-validations"].push_back(
      CrdRule("!has(self.globalBatch) || self.what == 'Gradients'",
              "globalBatch is only for what: Gradients"));
  // The API server judges the block's default, {}, before it fills in the defaults of its fields:
  // no rule may need one to be there.
  averaging["x-kubernetes-validations"].push_back(
      CrdRule("!has(self.what) || self.what != 'Gradients' || (has(self.globalBatch) && "
              "self.overlap == 'Blocking' && self.strategy in ['Moshpit', 'AllReduce'])",
              "what: Gradients needs a globalBatch, overlap: Blocking and strategy AllReduce or "
              "Moshpit"));
  averaging["x-kubernetes-validations"].push_back(CrdRule(
      "!has(self.outerOptimizer) || self.outerOptimizer.type == 'None' || "
      "self.strategy in ['Moshpit', 'AllReduce']",
      "an outerOptimizer needs a base that all workers share: strategy Moshpit or AllReduce"));
  averaging["x-kubernetes-validations"].push_back(
      CrdRule("!has(self.compression) || self.compression != 'Int8' || "
              "(self.strategy in ['Moshpit', 'AllReduce'] && self.what != 'Gradients')",
              "compression: Int8 needs strategy AllReduce or Moshpit, and what: Parameters"));
  averaging["x-kubernetes-validations"].push_back(
      CrdRule("!has(self.rounds) || self.rounds != 'One' || self.strategy != 'Moshpit' || "
              "((!has(self.outerOptimizer) || self.outerOptimizer.type == 'None') && "
              "(!has(self.compression) || self.compression != 'Int8') && "
              "(!has(self.what) || self.what != 'Gradients'))",
              "rounds: One leaves groups with values of their own: it goes with no outerOptimizer, "
              "compression: Int8 or what: Gradients"));
  averaging["x-kubernetes-validations"].push_back(
      CrdRule("self.strategy != 'IST' || !has(self.roles) || !('OptimizerState' in self.roles)",
              "roles: OptimizerState cannot be averaged with IST: a worker's optimizer has moments "
              "of its own units only"));
  averaging["properties"]["interval"]["x-kubernetes-validations"].push_back(
      CrdRule("[has(self.steps), has(self.samples), has(self.seconds)].filter(x, x).size() == 1",
              "needs exactly one of steps, samples, seconds"));
}

}  // namespace

void AddCrdRules(json& spec) {
  json& rules = spec["x-kubernetes-validations"];
  rules.push_back(CrdRule("!has(self.minReplicas) || self.replicas >= self.minReplicas",
                          "replicas is below minReplicas"));
  rules.push_back(CrdRule("!has(self.maxReplicas) || self.replicas <= self.maxReplicas",
                          "replicas is above maxReplicas"));
  AddGroupRules(rules);
  rules.push_back(
      CrdRule("!has(self.checkpoint) || !has(self.checkpoint.volume) || "
              "(has(self.template.spec.volumes) && "
              "self.template.spec.volumes.exists(v, v.name == self.checkpoint.volume))",
              "checkpoint.volume is not a volume of spec.template"));
  json& properties = spec["properties"];
  AddAveragingRules(properties["averaging"]);
  json& target = properties["target"];
  target["x-kubernetes-validations"].push_back(
      CrdRule("has(self.samples) || has(self.steps) || has(self.seconds) || has(self.metric)",
              "needs at least one of samples, steps, seconds, metric"));
  target["properties"]["metric"]["required"] = {"name"};
  target["properties"]["metric"]["x-kubernetes-validations"].push_back(
      CrdRule("has(self.below) != has(self.above)", "needs below or above, not both"));
  json& failure = properties["failurePolicy"]["properties"]["rules"]["items"];
  failure["x-kubernetes-validations"].push_back(
      CrdRule("has(self.onExitCodes) != has(self.onPodConditions)",
              "needs onExitCodes or onPodConditions, not both"));
  failure["properties"]["onExitCodes"]["required"] = {"values"};
  failure["properties"]["onPodConditions"]["items"]["required"] = {"type"};
  for (const NotBuilt& field : kNotBuilt) {
    const size_t dot = field.path.find('.');
    const std::string block(field.path.substr(0, dot)), name(field.path.substr(dot + 1));
    const bool is_switch = FindField(field.path)->kind == FieldKind::kBoolean;
    properties[block]["x-kubernetes-validations"].push_back(
        CrdRule("!has(self." + name + ")" + (is_switch ? " || !self." + name : std::string()),
                name + " " + WhyNotBuilt(field)));
  }
}

}  // namespace crowdsurf::controller
