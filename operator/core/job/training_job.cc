#include "operator/core/job/training_job.h"

#include <algorithm>

#include "base/check.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/validate.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

// Above the bounds of all fields that are read with it (spec_fields.h): a kept spec is input.
constexpr double kMaxOfAll = 1e9;

int Int(const json& object, std::string_view path) {
  const json* value = At(object, path);
  CHECK(value != nullptr);  // WithDefaults filled it
  return static_cast<int>(std::clamp(value->get<double>(), -kMaxOfAll, kMaxOfAll));
}

std::optional<Duration> MaybeSeconds(const json& object, std::string_view path) {
  const json* value = At(object, path);
  if (value == nullptr) return std::nullopt;
  return Seconds(std::clamp(value->get<double>(), 0.0, kMaxOfAll));
}

Duration SecondsAt(const json& object, std::string_view path) {
  return MaybeSeconds(object, path).value_or(Duration());
}

CapacitySpec CapacityFromJson(const json& spec) {
  CapacitySpec capacity;
  const std::string type = TextAt(spec, "capacity.type");
  capacity.type = type == "OnDemand" ? CapacityType::kOnDemand
                  : type == "Any"    ? CapacityType::kAny
                                     : CapacityType::kSpot;
  capacity.on_demand_base = Int(spec, "capacity.onDemandBase");
  capacity.on_demand_percentage_above_base = Int(spec, "capacity.onDemandPercentageAboveBase");
  capacity.fallback_after = SecondsAt(spec, "capacity.fallback.afterSeconds");
  capacity.fallback_max_on_demand = Int(spec, "capacity.fallback.maxOnDemand");
  return capacity;
}

FailureRule RuleFromJson(const json& rule) {
  FailureRule out;
  out.name = TextAt(rule, "name");
  out.exit_codes_in = TextAt(rule, "onExitCodes.operator") != "NotIn";
  if (const json* values = At(rule, "onExitCodes.values")) {
    for (const json& value : *values) out.exit_codes.push_back(value.get<int>());
  }
  if (const json* conditions = Member(&rule, "onPodConditions")) {
    for (const json& condition : *conditions) {
      out.conditions.push_back({TextAt(condition, "type"), TextAt(condition, "status")});
    }
  }
  const std::string action = TextAt(rule, "action");
  out.action = action == "FailJob"         ? FailureAction::kFailJob
               : action == "ReplaceWorker" ? FailureAction::kReplaceWorker
               : action == "Ignore"        ? FailureAction::kIgnore
                                           : FailureAction::kCount;
  return out;
}

RunPolicy RunFromJson(const json& spec) {
  RunPolicy run;
  run.backoff_limit = Int(spec, "runPolicy.backoffLimit");
  run.failure_window = SecondsAt(spec, "runPolicy.failureWindowSeconds");
  run.active_deadline = MaybeSeconds(spec, "runPolicy.activeDeadlineSeconds");
  run.start_deadline = MaybeSeconds(spec, "runPolicy.startDeadlineSeconds");
  run.ttl_after_finished = MaybeSeconds(spec, "runPolicy.ttlSecondsAfterFinished");
  const std::string clean = TextAt(spec, "runPolicy.cleanPodPolicy");
  run.clean_pods = clean == "All"    ? CleanPodPolicy::kAll
                   : clean == "None" ? CleanPodPolicy::kNone
                                     : CleanPodPolicy::kRunning;
  return run;
}

}  // namespace

std::string_view Name(CapacityType type) {
  switch (type) {
    case CapacityType::kSpot:
      return "Spot";
    case CapacityType::kOnDemand:
      return "OnDemand";
    case CapacityType::kAny:
      return "Any";
  }
  CheckFailed(__FILE__, __LINE__, "not a CapacityType");
}

const Condition* TrainingJobStatus::Find(ConditionType type) const {
  const auto it = std::find_if(conditions.begin(), conditions.end(),
                               [&](const Condition& c) { return c.type == type; });
  return it == conditions.end() ? nullptr : &*it;
}

bool TrainingJobStatus::Is(ConditionType type) const {
  const Condition* condition = Find(type);
  return condition != nullptr && condition->on;
}

std::optional<TrainingJobSpec> ReadSpec(const json& spec) {
  if (!spec.is_object()) return std::nullopt;
  try {
    return SpecFromJson(WithDefaults(spec));
  } catch (const json::exception&) {  // a field of another type
    return std::nullopt;
  }
}

void SetCondition(TrainingJobStatus& status, Condition condition) {
  // Conditions carry whole seconds in Kubernetes.
  condition.changed =
      WallTime::FromNanoseconds(condition.changed.nanoseconds() / 1'000'000'000 * 1'000'000'000);
  std::vector<Condition>& all = status.conditions;
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const Condition& c) { return c.type >= condition.type; });
  if (at == all.end() || at->type != condition.type) {
    all.insert(at, std::move(condition));
    return;
  }
  // lastTransitionTime tells when the condition turned on or off. A new message is no transition.
  if (at->on == condition.on) condition.changed = at->changed;
  *at = std::move(condition);
}

TrainingJobSpec SpecFromJson(const json& spec) {
  TrainingJobSpec out;
  out.replicas = Int(spec, "replicas");
  out.min_replicas = Int(spec, "minReplicas");
  out.max_replicas = Int(spec, "maxReplicas");
  out.suspend = *At(spec, "suspend") == true;
  out.capacity = CapacityFromJson(spec);
  const std::string success = TextAt(spec, "successPolicy.criterion");
  out.success = success == "AllSucceeded"   ? SuccessCriterion::kAllSucceeded
                : success == "AnySucceeded" ? SuccessCriterion::kAnySucceeded
                                            : SuccessCriterion::kTargetReached;
  if (const json* rules = At(spec, "failurePolicy.rules")) {
    for (const json& rule : *rules) out.failure_rules.push_back(RuleFromJson(rule));
  }
  out.run = RunFromJson(spec);
  out.disruption.grace = SecondsAt(spec, "disruption.graceSeconds");
  out.disruption.tolerated_unreachable = SecondsAt(spec, "disruption.toleratedUnreachableSeconds");
  out.disruption.force_delete_after = SecondsAt(spec, "disruption.forceDeleteAfterSeconds");
  // Kubelet obeys the template's value, so the operator plans with it, too.
  if (const json* grace = At(spec, "template.spec.terminationGracePeriodSeconds")) {
    if (grace->is_number()) out.disruption.grace = Seconds(grace->get<double>());
  }
  if (const json* peers = At(spec, "discovery.bootstrapPeers")) {
    for (const json& peer : *peers) out.bootstrap_peers.push_back(peer.get<std::string>());
  }
  out.averaging = spec.value("averaging", json::object());
  out.target = spec.value("target", json::object());
  out.checkpoint = spec.value("checkpoint", json::object());
  out.agent = spec.value("agent", json::object());
  out.scheduling = spec.value("scheduling", json::object());
  const json* wait = At(spec, "disruption.doNotDisrupt");
  out.do_not_disrupt = wait != nullptr && *wait == true;
  const json* most = At(spec, "disruption.podDisruptionBudget.maxUnavailable");
  if (most != nullptr) out.max_unavailable = *most;
  const json* network = At(spec, "network.policy");
  out.managed_network = network != nullptr && *network == "Managed";
  const json* tls = At(spec, "tls.mode");
  out.tensors_in_clear = tls != nullptr && *tls == "Disabled";
  out.managed_by = TextAt(spec, "managedBy");
  out.pod_template = spec.value("template", json::object());
  return out;
}

}  // namespace crowdsurf::controller
