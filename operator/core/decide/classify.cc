#include "operator/core/decide/classify.h"

#include <algorithm>

namespace crowdsurf::controller {
namespace {

// Reasons of pod.status that the kubelet gives when the node, not the container, is at fault. The
// last three refuse a pod; after a kubelet's restart they end one that ran.
constexpr std::string_view kPlatformReasons[] = {"Terminated",
                                                 "NodeShutdown",
                                                 "NodeLost",
                                                 "Preempting",
                                                 "Shutdown",
                                                 "NodeAffinity",
                                                 "UnexpectedAdmissionError",
                                                 "TopologyAffinityError"};

// Reasons with which a kubelet refuses a pod because of what its template asks for: no other node
// of the kind takes it.
constexpr std::string_view kTemplateReasons[] = {"SysctlForbidden", "PodOSNotSupported",
                                                 "PodOSSelectorNodeLabelDoesNotMatch"};

// Reasons of a container's end with which kubelet and runtime say that they lost it, as after a
// quick reboot. Source: kubernetes pkg/kubelet/kubelet_pods.go, containerd's CRI.
constexpr std::string_view kLostReasons[] = {"Unknown", "ContainerStatusUnknown"};

// After a trainer's good end its agent is told to end and says why: until then nobody knows whether
// the target was met. A kubelet needs about a second.
constexpr Duration kLastWords = Seconds(15);

constexpr int kUnknownExit = 255;  // what a killed shim is reported as

template <size_t size>
bool IsOneOf(std::string_view reason, const std::string_view (&reasons)[size]) {
  return std::find(std::begin(reasons), std::end(reasons), reason) != std::end(reasons);
}

bool PlatformReason(std::string_view reason) {
  return reason.starts_with("OutOf") || IsOneOf(reason, kPlatformReasons);
}

bool Lost(const std::optional<ContainerEnd>& end) {
  return end && IsOneOf(end->reason, kLostReasons);
}

// A pod that another took the place of, or whose node had no room, has the condition
// DisruptionTarget. Without it kubelet speaks of the pod's own limits, or refuses one at the door
// of a node under pressure. Source: kubernetes pkg/kubelet/eviction/eviction_manager.go.
Verdict JudgeEviction(const PodFacts& pod) {
  const bool of_node = pod.status_message.starts_with("The node ");
  if (!of_node && (pod.ever_ready || !pod.status_message.empty())) {
    return {Fate::kFailed, reason::kLimitExceeded};
  }
  return {Fate::kDisrupted, pod.ever_ready ? reason::kEvicted : reason::kRefusedByNode};
}

// What kubelet says of the pod as a whole; alive: nothing that decides.
Verdict JudgePodReason(const PodFacts& pod) {
  const std::string& why = pod.status_reason;
  if (why == "Evicted") return JudgeEviction(pod);
  if (why == "DeadlineExceeded") return {Fate::kFailed, reason::kDeadlineExceeded};
  if (PlatformReason(why)) {
    return {Fate::kDisrupted, pod.ever_ready ? reason::kEvicted : reason::kRefusedByNode};
  }
  return {};
}

// Exits that a polite or a forced stop gives: 0, SIGINT, SIGKILL, SIGTERM.
bool StopExit(int code) { return code == 0 || code == 130 || code == 137 || code == 143; }

Verdict JudgeTrainer(const PodFacts& pod, const NodeFacts* node, const JudgeContext& context) {
  const ContainerEnd& end = *pod.trainer;
  // The trainer causes these two itself, also on a node that is going away.
  if (end.reason == "OOMKilled") return {Fate::kFailed, reason::kOomKilled};
  if (end.reason == "Hung") return {Fate::kFailed, reason::kTrainerHung};
  if (const Verdict said = JudgePodReason(pod); said.fate != Fate::kAlive) return said;
  if (Lost(pod.trainer)) return {Fate::kDisrupted, reason::kContainerLost};
  // The platform reports 255 for a container whose node died with it. On a healthy node 255 is the
  // trainer's own.
  const bool not_ready = node != nullptr && node->not_ready_since.has_value();
  if (not_ready && (end.exit_code == kUnknownExit || pod.status_reason == "Unknown")) {
    return {Fate::kDisrupted, reason::kNodeNotReady};
  }
  if (end.exit_code != 0) return {Fate::kFailed, reason::kExitCode};
  if (context.target_met || context.success != SuccessCriterion::kTargetReached) {
    return {Fate::kSucceeded, reason::kTargetMet};
  }
  // Asked, or deleted so that it says it: Decide deletes a pod that must speak.
  if (const auto at = JudgedAt(pod); at && (context.now < *at || MustSpeak(pod, context.now))) {
    return {};
  }
  return {Fate::kFailed, reason::kEndedBeforeTarget};
}

// Nothing of the trainer's has ended. An agent that has, or an init container, decides.
Verdict JudgeStart(const PodFacts& pod, const JudgeContext& context) {
  if (const Verdict said = JudgePodReason(pod); said.fate != Fate::kAlive) return said;
  if (Lost(pod.init) || Lost(pod.agent)) return {Fate::kDisrupted, reason::kContainerLost};
  if (pod.init) return {Fate::kFailed, reason::kInitContainer};
  if (!pod.agent) {
    if (pod.phase != PodPhase::kFailed) return {};
    // No container ended, so kubelet refused the pod before any of them ran. Its word is about the
    // node, unless it is one of the few about the template.
    if (pod.status_reason.empty() || IsOneOf(pod.status_reason, kTemplateReasons)) {
      return {Fate::kFailed, reason::kCannotStart};
    }
    return {Fate::kDisrupted, reason::kRefusedByNode};
  }
  // After the target the agents leave first; their trainers follow.
  if (pod.agent->exit_code == 0 && context.target_met) return {};
  // An agent that never came up is nothing that a new machine mends.
  if (!pod.ever_ready) return {Fate::kFailed, reason::kAgentNeverStarted};
  return {Fate::kDisrupted, reason::kAgentCrashed};
}

}  // namespace

Verdict Classify(const PodFacts& pod, const NodeFacts* node, const JudgeContext& context) {
  const bool node_gone = node == nullptr && !pod.node.empty();
  // A pod that is being deleted is never success or failure, whatever its phase.
  if (!pod.disruption_target.empty()) return {Fate::kDisrupted, reason::kEvicted};
  if (pod.deleted && !EndedByItself(pod)) return {Fate::kDisrupted, reason::kPodDeleted};
  const bool marked = node != nullptr && node->mark && !node->mark->weak;
  // The notice outlives the mark: a worker may have begun to leave before the mark was withdrawn.
  const bool told = marked || !pod.Annotation(kNoticeAnnotation).empty();
  // A stop after a notice is the platform's doing. An OOM kill ends with 137 as well and stays a
  // failure.
  if (pod.trainer && told && StopExit(pod.trainer->exit_code) &&
      pod.trainer->reason != "OOMKilled") {
    if (pod.trainer->exit_code == 0 && context.target_met) {
      return {Fate::kSucceeded, reason::kTargetMet};
    }
    return {Fate::kDisrupted, node_gone ? reason::kNodeGone : reason::kNodeMarked};
  }
  // Nothing that a pod of a lost machine reports can be blamed on the trainer.
  if (node_gone) return {Fate::kDisrupted, reason::kNodeGone};
  if (pod.trainer) return JudgeTrainer(pod, node, context);
  if (pod.agent && told) return {Fate::kDisrupted, reason::kNodeMarked};
  const bool ended = pod.agent || pod.init || pod.phase == PodPhase::kFailed;
  if (ended) return JudgeStart(pod, context);
  if (node != nullptr && node->not_ready_since &&
      context.now >= GivenUpAt(*node, context.nodes_heard_since, context.tolerated_unreachable)) {
    return {Fate::kDisrupted, reason::kNodeNotReady};
  }
  // Where nothing is known of the node, the notice stands.
  if (marked || (told && node != nullptr && node->unknown)) {
    return {Fate::kMarked, reason::kNodeMarked};
  }
  // Last: what the API itself shows needs no portions (policy_reports.cc).
  if (pod.reported_dead) return {Fate::kDisrupted, reason::kPeersReportedDead};
  return {};
}

WallTime GivenUpAt(const NodeFacts& node, WallTime nodes_heard_since, Duration tolerated) {
  // The latest of the three moments: until then the machine was heard, or nobody could hear it.
  WallTime silent = std::max(*node.not_ready_since, nodes_heard_since);
  if (node.renewed_at) silent = std::max(silent, *node.renewed_at);
  return silent + tolerated;
}

std::optional<WallTime> JudgedAt(const PodFacts& pod) {
  if (!pod.trainer || pod.agent || !pod.trainer->at) return std::nullopt;
  if (pod.deleted && EndedByItself(pod)) return *pod.deleted + pod.grace + kLastWords;
  return *pod.trainer->at + kLastWords;
}

bool AwaitsWords(const PodFacts& pod) {
  return pod.trainer && pod.trainer->exit_code == 0 && !pod.agent && pod.others_run && !pod.deleted;
}

bool MustSpeak(const PodFacts& pod, WallTime now) {
  const auto at = JudgedAt(pod);
  return AwaitsWords(pod) && at && now >= *at;
}

bool EndedByItself(const PodFacts& pod) {
  return pod.trainer && pod.trainer->exit_code == 0 && pod.trainer->at && pod.deleted &&
         *pod.deleted >= *pod.trainer->at + kLastWords;
}

bool HasEnded(const PodFacts& pod) {
  // The phase follows the containers seconds later, or never (docs/pod-lifecycle.md 2.2).
  return pod.phase == PodPhase::kSucceeded || pod.phase == PodPhase::kFailed ||
         (pod.trainer && pod.agent);
}

FailureAction ActionFor(const std::vector<FailureRule>& rules, const PodFacts& pod) {
  for (const FailureRule& rule : rules) {
    if (!rule.exit_codes.empty()) {
      // As in batch/v1, no rule matches exit code 0: else NotIn would match every good end.
      if (!pod.trainer || pod.trainer->exit_code == 0) continue;
      const bool listed = std::find(rule.exit_codes.begin(), rule.exit_codes.end(),
                                    pod.trainer->exit_code) != rule.exit_codes.end();
      if (listed == rule.exit_codes_in) return rule.action;
      continue;
    }
    const bool matches = std::any_of(
        rule.conditions.begin(), rule.conditions.end(), [&](const PodCondition& wanted) {
          return std::find(pod.conditions.begin(), pod.conditions.end(), wanted) !=
                 pod.conditions.end();
        });
    if (matches) return rule.action;
  }
  return FailureAction::kCount;
}

}  // namespace crowdsurf::controller
