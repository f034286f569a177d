#include "operator/core/observe/observe.h"

#include <charconv>

#include "base/text.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/rfc3339.h"
#include "operator/core/job/validate.h"
#include "operator/core/pods/node_marks.h"
#include "operator/core/pods/pod_builder.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kMaxWrong = 900;                 // of 1,024 that an event's message holds
constexpr char kTargetMetWords[] = "target met";  // an agent's reason to end

// A member whose name has dots in it: a label or an annotation.
std::string Entry(const json& object, const char* map, std::string_view key) {
  const json* value = Member(At(object, map), key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<int> Number(const std::string& text) {
  int number = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < 0) return std::nullopt;
  return number;
}

PodPhase PhaseOf(const std::string& text) {
  if (text == "Pending") return PodPhase::kPending;
  if (text == "Running") return PodPhase::kRunning;
  if (text == "Succeeded") return PodPhase::kSucceeded;
  if (text == "Failed") return PodPhase::kFailed;
  return text.empty() ? PodPhase::kPending : PodPhase::kUnknown;
}

// The container that was given the link: whatever else is injected later is not the trainer.
std::string TrainerName(const json& pod) {
  std::string name;
  Each(pod, "spec.containers", [&](const json& container) {
    Each(container, "env", [&](const json& variable) {
      if (TextAt(variable, "name") == "CROWDSURF_WORKER") name = TextAt(container, "name");
    });
  });
  return name;
}

std::optional<ContainerEnd> EndOf(const json& status, std::string_view path) {
  const json* end = At(status, path);
  if (end == nullptr || !end->is_object()) return std::nullopt;
  const json* code = Member(end, "exitCode");
  ContainerEnd out;
  // 255 is the code of an end that nobody saw; the node decides what it means (classify.cc).
  out.exit_code = code != nullptr && code->is_number_integer() ? code->get<int>() : 255;
  out.reason = TextAt(*end, "reason");
  out.output = CutText(TextAt(*end, "message"), kMaxOutputInStatus);
  out.at = InstantAt(*end, "finishedAt");
  return out;
}

// The agent's termination message (docs/signals.md); nullopt for text that is none.
std::optional<Progress> LastWords(const std::string& message) {
  const json words = json::parse(message, nullptr, false);
  if (!words.is_object() || TextAt(words, "reason").empty()) return std::nullopt;
  const auto count = [&](const char* name) -> uint64_t {
    const json* value = Member(&words, name);
    const double number = value != nullptr && value->is_number() ? value->get<double>() : 0;
    // Doubles are exact below 2^53; a larger one might not fit the integer.
    return number > 0 && number < 9e15 ? static_cast<uint64_t>(number) : 0;
  };
  Progress progress;
  progress.samples = count("samples");
  progress.step = count("step");
  progress.averaging = count("averaging");
  const json* loss = Member(&words, "loss");
  if (loss != nullptr && loss->is_number()) progress.loss = loss->get<double>();
  progress.target_met = TextAt(words, "reason") == kTargetMetWords;
  return progress;
}

std::string_view WaitingReason(const std::string& reason) {
  for (const char* image : {"ErrImagePull", "ImagePullBackOff", "InvalidImageName",
                            "ErrImageNeverPull", "ImageInspectError"}) {
    if (reason == image) return reason::kImagePull;
  }
  for (const char* start :
       {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}) {
    if (reason == start) return reason::kCannotStart;
  }
  return {};
}

void ReadContainers(const json& pod, PodFacts& facts) {
  const std::string trainer = TrainerName(pod);
  const auto waiting = [&](const json& status) {
    const std::string_view why = WaitingReason(TextAt(status, "state.waiting.reason"));
    if (why.empty()) return;
    facts.waiting_reason = why;
    facts.waiting_message = CutText(TextAt(status, "state.waiting.message"), kMaxOutputInStatus);
  };
  Each(pod, "status.containerStatuses", [&](const json& status) {
    waiting(status);
    if (TextAt(status, "name") != trainer) return;
    facts.trainer = EndOf(status, "state.terminated");
    // A native sidecar was up before the trainer could start.
    if (facts.trainer || At(status, "state.running") != nullptr) facts.ever_ready = true;
  });
  Each(pod, "status.initContainerStatuses", [&](const json& status) {
    waiting(status);
    if (TextAt(status, "name") != kAgentContainer) return;
    facts.agent = EndOf(status, "state.terminated");
    // While kubelet waits to start it again, only lastState has the end.
    if (TextAt(status, "state.waiting.reason") == "CrashLoopBackOff") {
      facts.agent = EndOf(status, "lastState.terminated");
    }
    if (facts.agent) facts.last_words = LastWords(facts.agent->output);
  });
}

// What the agent was given: its image, and what a LimitRange has added, which it notes down as
// "LimitRanger plugin set: memory limit for container a; cpu limit for init container b".
void ReadAgent(const json& pod, PodFacts& facts) {
  const std::string added = Entry(pod, "metadata.annotations", "kubernetes.io/limit-ranger");
  const std::string whose = " limit for init container " + std::string(kAgentContainer);
  const size_t end = added.find(whose), from = added.find_last_of(":;", end);
  const bool cpu = end != std::string::npos && from != std::string::npos &&
                   added.substr(from, end - from).find("cpu") != std::string::npos;
  Each(pod, "spec.initContainers", [&](const json& container) {
    if (TextAt(container, "name") != kAgentContainer) return;
    facts.agent_image = TextAt(container, "image");
    if (cpu) facts.agent_cpu_limit = TextAt(container, "resources.limits.cpu");
  });
}

void ReadConditions(const json& pod, PodFacts& facts) {
  Each(pod, "status.conditions", [&](const json& condition) {
    const std::string type = TextAt(condition, "type"), status = TextAt(condition, "status");
    facts.conditions.push_back({type, status});
    if (type == "Ready" && status == "True") {
      facts.ready_since = InstantAt(condition, "lastTransitionTime").value_or(facts.created);
      facts.ever_ready = true;
    } else if (type == "DisruptionTarget" && status == "True") {
      facts.disruption_target = TextAt(condition, "reason");
      if (facts.disruption_target.empty()) facts.disruption_target = "Unknown";
    } else if (type == "PodScheduled" && status == "False" &&
               TextAt(condition, "reason") == "Unschedulable") {
      facts.waiting_message = CutText(TextAt(condition, "message"), kMaxOutputInStatus);
      // A claim that is missing or not bound is no lack of machines: other capacity cannot help.
      const bool claim = facts.waiting_message.find("persistentvolumeclaim") != std::string::npos ||
                         facts.waiting_message.find("PersistentVolumeClaim") != std::string::npos;
      facts.waiting_reason = facts.capacity == CapacityType::kSpot && !claim
                                 ? reason::kNoSpotCapacity
                                 : reason::kUnschedulable;
    }
  });
}

void ReadDeletion(const json& pod, PodFacts& facts) {
  const auto until = InstantAt(pod, "metadata.deletionTimestamp");
  if (!until) return;
  const json* grace = At(pod, "metadata.deletionGracePeriodSeconds");
  facts.grace = Seconds(grace != nullptr && grace->is_number() ? grace->get<double>() : 0);
  facts.deleted = *until - facts.grace;  // the timestamp is when the grace is over
}

// The controlling owner, if it is a TrainingJob.
const json* JobOwner(const json& object) {
  const json* found = nullptr;
  Each(object, "metadata.ownerReferences", [&](const json& owner) {
    const json* controls = Member(&owner, "controller");
    if (controls != nullptr && *controls == true && TextAt(owner, "kind") == "TrainingJob") {
      found = &owner;
    }
  });
  return found;
}

CapacityType CapacityOf(const json& pod) {
  const json capacity =
      json::parse(Entry(pod, "metadata.annotations", kCapacityAnnotation), nullptr, false);
  const std::string type = capacity.is_object() ? TextAt(capacity, "type") : "";
  return type == "OnDemand" ? CapacityType::kOnDemand
         : type == "Any"    ? CapacityType::kAny
                            : CapacityType::kSpot;
}

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

std::optional<PodEntry> ObservePod(const json& pod) {
  const json* owner = JobOwner(pod);
  const auto index = Number(Entry(pod, "metadata.labels", kIndexLabel));
  const auto incarnation = Number(Entry(pod, "metadata.labels", kIncarnationLabel));
  if (owner == nullptr || !index || !incarnation) return std::nullopt;
  PodEntry entry;
  entry.job = TextAt(pod, "metadata.namespace") + "/" + TextAt(*owner, "name");
  entry.job_uid = TextAt(*owner, "uid");
  PodFacts& facts = entry.facts;
  facts.name = TextAt(pod, "metadata.name");
  facts.uid = TextAt(pod, "metadata.uid");
  facts.index = *index;
  facts.incarnation = *incarnation;
  facts.phase = PhaseOf(TextAt(pod, "status.phase"));
  facts.node = TextAt(pod, "spec.nodeName");
  facts.capacity = CapacityOf(pod);
  facts.created = InstantAt(pod, "metadata.creationTimestamp").value_or(WallTime());
  facts.status_reason = TextAt(pod, "status.reason");
  ReadDeletion(pod, facts);
  ReadConditions(pod, facts);
  ReadContainers(pod, facts);
  ReadAgent(pod, facts);
  for (const std::string_view key :
       {kNoticeAnnotation, kConfigAnnotation, kSeedsAnnotation, kNotifiedAtAnnotation}) {
    const std::string value = Entry(pod, "metadata.annotations", key);
    if (!value.empty()) facts.annotations[std::string(key)] = value;
  }
  if (const std::string ip = TextAt(pod, "status.podIP"); !ip.empty()) {
    const std::string host = ip.find(':') == std::string::npos ? ip : "[" + ip + "]";
    facts.address = host + ":" + std::to_string(kPeerPort);
    entry.http = host + ":" + std::to_string(kHttpPort);
  }
  return entry;
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
    entry.spot = entry.spot || Entry(node, "metadata.labels", label.key) == label.value;
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
