#include <algorithm>
#include <cmath>

#include "operator/core/job/json_path.h"
#include "operator/core/observe/observe.h"
#include "operator/core/pods/pod_builder.h"

// The status as people and other controllers read it, and the patch that writes it.
namespace crowdsurf::controller {
namespace {

using nlohmann::json;

// Of the first target that is a count; empty for a metric alone.
std::string Percent(const json& target, const Progress& progress) {
  if (progress.target_met) return "100%";
  const auto share = [&](const char* name, uint64_t done) -> std::optional<double> {
    const json* wanted = Member(&target, name);
    if (wanted == nullptr || !wanted->is_number() || wanted->get<double>() <= 0) return {};
    return static_cast<double>(done) / wanted->get<double>();
  };
  auto done = share("samples", progress.samples);
  if (!done) done = share("steps", progress.step);
  if (!done) return {};
  // 100 % is said only when the view says that the target is met.
  return std::to_string(static_cast<int>(std::min(99.0, std::floor(*done * 100)))) + "%";
}

}  // namespace

std::string StateOf(const TrainingJobStatus& status) {
  // The first that holds: an end is final, a suspension explains all that comes after it.
  if (status.Is(ConditionType::kSucceeded)) return "Succeeded";
  if (status.Is(ConditionType::kFailed)) return "Failed";
  if (status.Is(ConditionType::kSuspended)) return "Suspended";
  const Condition* accepted = status.Find(ConditionType::kAccepted);
  const bool runs = status.Is(ConditionType::kRunning);  // with an earlier spec
  if (accepted != nullptr && !accepted->on && !runs) return accepted->reason;
  if (status.Is(ConditionType::kTargetReached)) return "Finishing";
  if (status.Is(ConditionType::kRunning)) {
    return status.Is(ConditionType::kDegraded) ? "Degraded" : "Running";
  }
  const Condition* running = status.Find(ConditionType::kRunning);
  return running != nullptr && !running->reason.empty() ? running->reason : "Starting";
}

json ShownStatus(const TrainingJob& job, const TrainingJobStatus& status) {
  json out = StatusToJson(status);
  out["state"] = StateOf(status);
  out["selector"] = WorkerSelector(job);
  const std::string percent = Percent(job.spec.target, status.progress);
  if (!percent.empty()) out["progress"]["percent"] = percent;
  return out;
}

json MergeDiff(const json& before, const json& after) {
  json patch = json::object();
  for (const auto& [key, value] : before.items()) {
    // In a JSON merge patch (RFC 7386) null removes a member.
    if (!after.contains(key)) patch[key] = nullptr;
  }
  for (const auto& [key, value] : after.items()) {
    const auto old = before.find(key);
    if (old == before.end()) {
      patch[key] = value;
    } else if (*old != value) {
      const bool objects = old->is_object() && value.is_object();
      patch[key] = objects ? MergeDiff(*old, value) : value;
    }
  }
  return patch;
}

}  // namespace crowdsurf::controller
