#include "operator/core/observe/observe.h"

#include <charconv>

#include "base/text.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/rfc3339.h"
#include "operator/core/job/validate.h"
#include "operator/core/pods/node_marks.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kMaxWrong = 900;  // of 1,024 that an event's message holds

}  // namespace

std::string KeyOf(const json& object) {
  const std::string name = TextAt(object, "metadata.name");
  const std::string space = TextAt(object, "metadata.namespace");
  return space.empty() || name.empty() ? name : space + "/" + name;
}

uint64_t VersionOf(const json& object) {
  return VersionNumber(TextAt(object, "metadata.resourceVersion"));
}

uint64_t VersionNumber(const std::string& text) {
  uint64_t version = 0;
  std::from_chars(text.data(), text.data() + text.size(), version);
  return version;
}

std::string WhatIsWrong(const std::vector<std::string>& violations) {
  std::string message;
  for (const std::string& violation : violations) {
    message += (message.empty() ? "" : "; ") + violation;
  }
  return CutText(message, kMaxWrong);
}

std::optional<NodeEntry> ObserveNode(const json& node) {
  NodeEntry entry;
  entry.facts.mark = FindMark(node);
  Each(node, "status.conditions", [&](const json& condition) {
    // Unknown counts as not ready: the control plane writes it when a kubelet is silent.
    if (TextAt(condition, "type") != "Ready" || TextAt(condition, "status") == "True") return;
    entry.facts.not_ready_since = InstantAt(condition, "lastTransitionTime");
  });
  for (const SpotLabel& label : SpotLabels()) {
    const json* value = Member(At(node, "metadata.labels"), label.key);
    entry.spot = entry.spot || (value != nullptr && *value == label.value);
  }
  return entry;
}

std::optional<JobEntry> ObserveJob(const json& object) {
  JobEntry entry;
  TrainingJob& job = entry.job;
  job.name = TextAt(object, "metadata.name");
  job.space = TextAt(object, "metadata.namespace");
  job.uid = TextAt(object, "metadata.uid");
  if (job.name.empty() || job.space.empty() || job.uid.empty()) return std::nullopt;
  const json* generation = At(object, "metadata.generation");
  if (generation != nullptr && generation->is_number_integer()) {
    job.generation = generation->get<int64_t>();
  }
  job.created = InstantAt(object, "metadata.creationTimestamp").value_or(WallTime());
  job.deleting = At(object, "metadata.deletionTimestamp") != nullptr;
  const json* status = Member(&object, "status");
  entry.status_json = status != nullptr && status->is_object() ? *status : json::object();
  entry.status = StatusFromJson(entry.status_json);
  Manifest manifest;
  const json* spec = Member(&object, "spec");
  manifest.document = {{"apiVersion", "crowdsurf.io/v1alpha1"},
                       {"kind", "TrainingJob"},
                       {"metadata", {{"name", job.name}, {"namespace", job.space}}},
                       {"spec", spec != nullptr ? *spec : json()}};
  for (const Violation& violation : Validate(manifest)) {
    entry.violations.push_back(violation.Text());
  }
  if (entry.violations.empty()) {
    job.spec = SpecFromJson(WithDefaults(*spec));
    for (const Violation& warning : Warnings(manifest)) entry.warnings.push_back(warning.Text());
  } else {
    // Two fields are obeyed whatever else is wrong: who manages the job, and whether it is
    // suspended.
    const json* suspend = Member(spec, "suspend");
    job.spec.suspend = suspend != nullptr && *suspend == true;
    job.spec.managed_by = manifest.document["spec"].is_object()
                              ? TextAt(manifest.document["spec"], "managedBy", kManagedByUs)
                              : kManagedByUs;
  }
  return entry;
}

}  // namespace crowdsurf::controller
