#include <algorithm>

#include "operator/core/job/failure_text.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/rfc3339.h"
#include "operator/core/job/training_job.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kMaxReasons = 64;  // reasons.h has fewer; a status is input when it is read back
constexpr size_t kMaxAvoidedRead = 64;  // policy_disruptions.cc writes fewer

void PutTime(json& out, const char* name, const std::optional<WallTime>& time) {
  if (time) out[name] = FormatInstant(*time);
}

template <class Number>
Number NumberAt(const json& in, const char* name, Number fallback) {
  const json* value = Member(&in, name);
  return value != nullptr && value->is_number() ? value->get<Number>() : fallback;
}

// An index written as a key; -1 when it is none.
int IndexOf(const std::string& text) {
  // No index has more digits, and std::stoi throws on a number that is too large.
  if (text.empty() || text.size() > 6) return -1;
  if (text.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoi(text);
}

json ConditionToJson(const Condition& condition) {
  return {{"type", Name(condition.type)},
          {"status", condition.on ? "True" : "False"},
          {"reason", condition.reason},
          {"message", condition.message},
          {"observedGeneration", condition.observed_generation},
          {"lastTransitionTime", FormatInstant(condition.changed)}};
}

void ReadConditions(const json& in, TrainingJobStatus& status) {
  const json* list = Member(&in, "conditions");
  if (list == nullptr || !list->is_array()) return;
  // By type and each once: two statuses are compared, and the server may list them in any order.
  for (size_t type = 0; type < kConditionNames.size(); ++type) {
    for (const json& item : *list) {
      if (TextAt(item, "type") != kConditionNames[type]) continue;
      Condition condition;
      condition.type = static_cast<ConditionType>(type);
      condition.on = TextAt(item, "status") == "True";
      condition.reason = TextAt(item, "reason");
      condition.message = TextAt(item, "message");
      condition.observed_generation = NumberAt<int64_t>(item, "observedGeneration", 0);
      condition.changed = InstantAt(item, "lastTransitionTime").value_or(WallTime());
      status.conditions.push_back(std::move(condition));
      break;
    }
  }
}

void ReadRefusals(const json& in, TrainingJobStatus& status) {
  const json* disruptions = Member(&in, "disruptions");
  if (const json* last = Member(disruptions, "lastRefused"); last != nullptr && last->is_object()) {
    status.last_refusal =
        RefusalNote{TextAt(*last, "worker"), TextAt(*last, "node"), TextAt(*last, "message"),
                    InstantAt(*last, "time").value_or(WallTime())};
  }
  Each(in, "avoidedNodes", [&](const json& one) {
    const auto until = InstantAt(one, "until");
    const std::string node = TextAt(one, "node");
    if (!until || node.empty() || status.avoided.size() >= kMaxAvoidedRead) return;
    status.avoided.push_back({node, *until});
  });
}

void ReadCounters(const json& in, TrainingJobStatus& status) {
  if (const json* disruptions = Member(&in, "disruptions")) {
    status.disruptions = NumberAt<uint64_t>(*disruptions, "total", 0);
    status.last_disruption = InstantAt(*disruptions, "lastTime");
    const json* by_reason = Member(disruptions, "byReason");
    if (by_reason != nullptr && by_reason->is_object()) {
      for (const auto& [name, count] : by_reason->items()) {
        if (count.is_number_unsigned() && status.disruptions_by_reason.size() < kMaxReasons) {
          status.disruptions_by_reason[name] = count.get<uint64_t>();
        }
      }
    }
  }
  ReadRefusals(in, status);
  const json* failures = Member(&in, "failures");
  if (failures == nullptr) return;
  status.failures = NumberAt<uint64_t>(*failures, "total", 0);
  if (const json* times = Member(failures, "counted"); times != nullptr && times->is_array()) {
    for (const json& time : *times) {
      if (!time.is_string()) continue;
      if (const auto parsed = ParseInstant(time.get_ref<const std::string&>())) {
        status.counted_failures.push_back(*parsed);
      }
    }
  }
  if (const json* last = Member(failures, "last")) {
    status.last_failure = FailureNote{TextAt(*last, "worker"), TextAt(*last, "reason"),
                                      NumberAt(*last, "exitCode", 0), TextAt(*last, "output"),
                                      InstantAt(*last, "time").value_or(WallTime())};
  }
}

void ReadWorkers(const json& in, TrainingJobStatus& status) {
  status.agent_image = TextAt(in, "agentImage");
  if (const json* map = Member(&in, "incarnations"); map != nullptr && map->is_object()) {
    for (const auto& [key, value] : map->items()) {
      if (IndexOf(key) >= 0 && value.is_number())
        status.incarnations[IndexOf(key)] = value.get<int>();
    }
  }
  status.incarnation_floor = std::max(0, NumberAt(in, "incarnationFloor", 0));
  if (const json* map = Member(&in, "retry"); map != nullptr && map->is_object()) {
    for (const auto& [key, value] : map->items()) {
      if (IndexOf(key) < 0) continue;
      status.retry[IndexOf(key)] = {NumberAt(value, "failures", 0),
                                    InstantAt(value, "notBefore").value_or(WallTime()),
                                    NumberAt(value, "disruptions", 0)};
    }
  }
  if (const json* list = Member(&in, "succeeded"); list != nullptr && list->is_array()) {
    for (const json& index : *list) {
      if (index.is_number_integer()) status.succeeded.push_back(index.get<int>());
    }
  }
  if (const json* list = Member(&in, "counted"); list != nullptr && list->is_array()) {
    for (const json& name : *list) {
      if (name.is_string()) status.counted.push_back(name.get<std::string>());
    }
  }
}

}  // namespace

// The fields are those of StatusSchema (crd.cc): the API server drops what a schema does not name.
json StatusToJson(const TrainingJobStatus& status) {
  json out = {{"observedGeneration", status.observed_generation},
              {"acceptedGeneration", status.accepted_generation},
              {"replicas", status.replicas},
              {"readyReplicas", status.ready_replicas},
              {"spotReplicas", status.spot_replicas},
              {"conditions", json::array()}};
  for (const Condition& condition : status.conditions) {
    out["conditions"].push_back(ConditionToJson(condition));
  }
  json& disruptions = out["disruptions"] = {{"total", status.disruptions}};
  if (!status.disruptions_by_reason.empty()) disruptions["byReason"] = status.disruptions_by_reason;
  PutTime(disruptions, "lastTime", status.last_disruption);
  if (status.last_refusal) {
    const RefusalNote& note = *status.last_refusal;
    disruptions["lastRefused"] = {{"worker", note.worker},
                                  {"node", note.node},
                                  {"message", note.message},
                                  {"time", FormatInstant(note.at)}};
  }
  for (const AvoidedNode& one : status.avoided) {
    out["avoidedNodes"].push_back({{"node", one.node}, {"until", FormatInstant(one.until)}});
  }
  json& failures = out["failures"] = {{"total", status.failures}};
  for (const WallTime& time : status.counted_failures) {
    failures["counted"].push_back(FormatInstant(time));
  }
  if (status.last_failure) {
    const FailureNote& note = *status.last_failure;
    failures["last"] = {
        {"worker", note.worker},      {"reason", note.reason},
        {"exitCode", note.exit_code}, {"message", FailureLine(note.reason, note.output)},
        {"output", note.output},      {"time", FormatInstant(note.at)}};
  }
  for (const auto& [index, highest] : status.incarnations) {
    out["incarnations"][std::to_string(index)] = highest;
  }
  if (status.incarnation_floor > 0) out["incarnationFloor"] = status.incarnation_floor;
  for (const auto& [index, retry] : status.retry) {
    json& shown = out["retry"][std::to_string(index)];
    shown = {{"failures", retry.failures}, {"notBefore", FormatInstant(retry.not_before)}};
    if (retry.disruptions > 0) shown["disruptions"] = retry.disruptions;
  }
  if (!status.succeeded.empty()) out["succeeded"] = status.succeeded;
  if (!status.agent_image.empty()) out["agentImage"] = status.agent_image;
  if (!status.counted.empty()) out["counted"] = status.counted;
  PutTime(out, "startTime", status.start_time);
  PutTime(out, "runningTime", status.running_time);
  PutTime(out, "targetTime", status.target_time);
  PutTime(out, "spotShortSince", status.spot_short_since);
  PutTime(out, "completionTime", status.completion_time);
  json& progress = out["progress"] = {{"samples", status.progress.samples},
                                      {"step", status.progress.step},
                                      {"averaging", status.progress.averaging},
                                      {"targetMet", status.progress.target_met}};
  if (status.progress.loss) progress["loss"] = *status.progress.loss;
  if (status.progress.samples_per_second > 0) {
    progress["samplesPerSecond"] = status.progress.samples_per_second;
  }
  if (status.progress.goodput) progress["goodput"] = *status.progress.goodput;
  if (status.progress.ideal_samples > 0) progress["idealSamples"] = status.progress.ideal_samples;
  PutTime(progress, "measuredTime", status.progress.measured);
  return out;
}

TrainingJobStatus StatusFromJson(const json& in) {
  TrainingJobStatus status;
  status.observed_generation = NumberAt<int64_t>(in, "observedGeneration", 0);
  status.accepted_generation = NumberAt<int64_t>(in, "acceptedGeneration", 0);
  status.replicas = NumberAt(in, "replicas", 0);
  status.ready_replicas = NumberAt(in, "readyReplicas", 0);
  status.spot_replicas = NumberAt(in, "spotReplicas", 0);
  ReadConditions(in, status);
  ReadCounters(in, status);
  ReadWorkers(in, status);
  status.start_time = InstantAt(in, "startTime");
  status.running_time = InstantAt(in, "runningTime");
  status.target_time = InstantAt(in, "targetTime");
  status.spot_short_since = InstantAt(in, "spotShortSince");
  status.completion_time = InstantAt(in, "completionTime");
  if (const json* progress = Member(&in, "progress")) {
    status.progress.samples = NumberAt<uint64_t>(*progress, "samples", 0);
    status.progress.step = NumberAt<uint64_t>(*progress, "step", 0);
    status.progress.averaging = NumberAt<uint64_t>(*progress, "averaging", 0);
    const json* met = Member(progress, "targetMet");
    status.progress.target_met = met != nullptr && *met == true;
    if (const json* loss = Member(progress, "loss"); loss != nullptr && loss->is_number()) {
      status.progress.loss = loss->get<double>();
    }
    status.progress.samples_per_second = NumberAt<double>(*progress, "samplesPerSecond", 0);
    const json* goodput = Member(progress, "goodput");
    if (goodput != nullptr && goodput->is_number()) {
      status.progress.goodput = goodput->get<double>();
    }
    status.progress.ideal_samples = NumberAt<double>(*progress, "idealSamples", 0);
    status.progress.measured = InstantAt(*progress, "measuredTime");
  }
  return status;
}

}  // namespace crowdsurf::controller
