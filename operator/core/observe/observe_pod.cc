#include <algorithm>
#include <charconv>
#include <set>

#include "base/text.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/rfc3339.h"
#include "operator/core/job/start_cause.h"
#include "operator/core/observe/observe.h"
#include "operator/core/pods/agent_summary.h"
#include "operator/core/pods/node_marks.h"
#include "operator/core/pods/pod_builder.h"

// A worker's pod as the facts that Decide reads.
namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kTargetMetWords[] = "target met";   // an agent's reason to end
constexpr char kCrashLoop[] = "CrashLoopBackOff";  // of a container that waits to be started again

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

// How a container ended that does not run now. While kubelet waits to start it again, only
// lastState has the end.
std::optional<ContainerEnd> LastEndOf(const json& status) {
  const bool loops = TextAt(status, "state.waiting.reason") == kCrashLoop;
  return EndOf(status, loops ? "lastState.terminated" : "state.terminated");
}

void ReadWaiting(const json& status, PodFacts& facts) {
  const std::string_view why = WaitingReason(TextAt(status, "state.waiting.reason"));
  if (why.empty()) return;
  facts.waiting_reason = why;
  facts.waiting_message = CutText(TextAt(status, "state.waiting.message"), kMaxOutputInStatus);
}

// The last bad end of an init container that has failed at least twice and has not got up since.
// Kubelet names the loop only while it waits; the container is as often seen ended, or running once
// more.
std::optional<ContainerEnd> LoopEndOf(const json& status, bool sidecar) {
  const json* count = Member(&status, "restartCount");
  const int64_t starts = count != nullptr && count->is_number_integer() ? count->get<int64_t>() : 0;
  const bool waits = TextAt(status, "state.waiting.reason") == kCrashLoop;
  const bool runs = At(status, "state.running") != nullptr;
  const json* started = Member(&status, "started");
  if (runs && sidecar && started != nullptr && *started == true) return std::nullopt;
  if (!waits && starts < (runs ? 2 : 1)) return std::nullopt;
  const auto end = EndOf(status, waits || runs ? "lastState.terminated" : "state.terminated");
  return end && end->exit_code != 0 ? end : std::nullopt;
}

// An init container of the user's, or of whatever is injected. A sidecar among them may end and
// start again; one that does not get up holds the pod as well.
void ReadInit(const json& status, bool sidecar, bool starts_again, PodFacts& facts) {
  const std::string name = TextAt(status, "name");
  if (const auto since = InstantAt(status, "state.running.startedAt"); since && !sidecar) {
    facts.init_name = name;
    facts.init_since = since;
  }
  const auto end = LastEndOf(status);
  if (end && end->exit_code != 0 && !sidecar && !starts_again) {
    facts.init_name = name;
    facts.init = end;
    return;
  }
  if (const auto loop = LoopEndOf(status, sidecar)) {
    facts.waiting_reason = reason::kInitContainer;
    facts.waiting_message = CutText(
        "init container " + name + " is in CrashLoopBackOff: it ended " + "with exit code " +
            std::to_string(loop->exit_code) + (loop->output.empty() ? "" : ": " + loop->output),
        kMaxOutputInStatus);
  }
}

// docs/signals.md. What it says in JSON becomes words for people.
void ReadLastWords(PodFacts& facts) {
  const auto words = ParseLastWords(facts.agent->output);
  if (!words) return;
  facts.last_words = words->progress;
  facts.agent->output = words->reason;
  if (const StartCause* cause = FindStartCause(words->waiting_for)) {
    facts.agent->output += "; " + std::string(cause->words);
  }
}

// An agent ends when its job is over, and kubelet starts it again while another container runs.
// What it left behind the first time is its end: the new one has nothing to do.
void ReadEarlierWords(const json& status, PodFacts& facts) {
  auto before = EndOf(status, "lastState.terminated");
  const auto words = before ? ParseLastWords(before->output) : std::nullopt;
  if (!words || !words->progress.target_met) return;
  facts.last_words = words->progress;
  if (!facts.trainer) return;
  facts.agent = std::move(before);
  facts.agent->output = words->reason;
}

void ReadInitContainers(const json& pod, PodFacts& facts) {
  std::set<std::string> sidecars;
  Each(pod, "spec.initContainers", [&](const json& container) {
    if (TextAt(container, "restartPolicy") == "Always") sidecars.insert(TextAt(container, "name"));
  });
  const bool starts_again = TextAt(pod, "spec.restartPolicy") == "OnFailure";
  Each(pod, "status.initContainerStatuses", [&](const json& status) {
    ReadWaiting(status, facts);
    const std::string name = TextAt(status, "name");
    if (name != kAgentContainer)
      return ReadInit(status, sidecars.contains(name), starts_again, facts);
    facts.agent = LastEndOf(status);
    if (facts.agent) return ReadLastWords(facts);
    ReadEarlierWords(status, facts);
  });
}

void ReadContainers(const json& pod, PodFacts& facts) {
  const std::string trainer = TrainerName(pod);
  Each(pod, "status.containerStatuses", [&](const json& status) {
    ReadWaiting(status, facts);
    if (TextAt(status, "name") != trainer) {
      facts.others_run = facts.others_run || At(status, "state.terminated") == nullptr;
      return;
    }
    facts.trainer = LastEndOf(status);
    facts.started = InstantAt(status, "state.running.startedAt");
    // A native sidecar was up before the trainer could start.
    if (facts.trainer || At(status, "state.running") != nullptr) facts.ever_ready = true;
  });
  ReadInitContainers(pod, facts);
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

bool Contains(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

// The pod may be placed on spot nodes only, so a node that does not match may lack just that.
bool WantsSpotNodes(const json& pod) {
  constexpr char kTerms[] =
      "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
      ".nodeSelectorTerms";
  bool wants = false;
  Each(pod, kTerms, [&](const json& term) {
    Each(term, "matchExpressions", [&](const json& expression) {
      const std::string key = TextAt(expression, "key");
      wants = wants || std::any_of(SpotLabels().begin(), SpotLabels().end(),
                                   [&](const SpotLabel& label) { return key == label.key; });
    });
  });
  return wants;
}

// Other capacity cannot help a pod whose claim is missing, or whose node selector or volume fits no
// node: only where the scheduler names no node that lacks room. Source: the messages of kubernetes
// pkg/scheduler/framework/plugins.
bool FitsNowhere(const json& pod, const std::string& message) {
  if (Contains(message, {"persistentvolumeclaim", "PersistentVolumeClaim"})) return true;
  if (Contains(message, {"Insufficient ", "Too many pods", "free ports", "were unschedulable",
                         "topology spread", "anti-affinity", "no nodes available"})) {
    return false;
  }
  if (Contains(message, {"volume node affinity conflict"})) return true;
  return Contains(message, {"match Pod's node affinity", "match node selector"}) &&
         !WantsSpotNodes(pod);
}

std::string_view WhyNotPlaced(const json& pod, const json& condition, CapacityType capacity) {
  const std::string why = TextAt(condition, "reason");
  if (why == "SchedulingGated") return reason::kSchedulingGated;
  if (why != "Unschedulable") return {};
  const bool spot = capacity == CapacityType::kSpot;
  return spot && !FitsNowhere(pod, TextAt(condition, "message")) ? reason::kNoSpotCapacity
                                                                 : reason::kUnschedulable;
}

void ReadConditions(const json& pod, PodFacts& facts) {
  Each(pod, "status.conditions", [&](const json& condition) {
    const std::string type = TextAt(condition, "type"), status = TextAt(condition, "status");
    facts.conditions.push_back({type, status});
    if (type == "Ready" && status == "True") {
      facts.ready_since = InstantAt(condition, "lastTransitionTime").value_or(facts.created);
      facts.ever_ready = true;
    } else if (type == "Ready" && facts.started) {
      // It was True since then, so it has trained.
      const auto changed = InstantAt(condition, "lastTransitionTime");
      if (changed && *changed > *facts.started) facts.started.reset();
    } else if (type == "DisruptionTarget" && status == "True") {
      facts.disruption_target = TextAt(condition, "reason");
      if (facts.disruption_target.empty()) facts.disruption_target = "Unknown";
    } else if (type == "PodScheduled" && status == "False") {
      const std::string_view why = WhyNotPlaced(pod, condition, facts.capacity);
      if (why.empty()) return;
      facts.waiting_reason = why;
      facts.waiting_message = CutText(TextAt(condition, "message"), kMaxOutputInStatus);
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
  facts.status_message = CutText(TextAt(pod, "status.message"), kMaxOutputInStatus);
  ReadDeletion(pod, facts);
  ReadContainers(pod, facts);
  ReadConditions(pod, facts);
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

}  // namespace crowdsurf::controller
