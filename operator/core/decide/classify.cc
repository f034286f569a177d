#include "operator/core/decide/classify.h"

#include <algorithm>

namespace crowdsurf::controller {
namespace {

// Reasons of pod.status that the kubelet gives when the node, not the container, is at fault.
constexpr std::string_view kPlatformReasons[] = {
    "Terminated", "NodeShutdown", "Evicted",      "NodeLost",
    "Preempting", "Shutdown",     "NodeAffinity", "UnexpectedAdmissionError"};

// After a trainer's good end its agent is told to end and says why: until then nobody knows whether
// the target was met. A kubelet needs about a second.
constexpr Duration kLastWords = Seconds(15);

constexpr int kUnknownExit = 255;  // what a killed shim is reported as

bool PlatformReason(std::string_view reason) {
  return reason.substr(0, 5) == "OutOf" ||
         std::find(std::begin(kPlatformReasons), std::end(kPlatformReasons), reason) !=
             std::end(kPlatformReasons);
}

// Exits that a polite or a forced stop gives: 0, SIGINT, SIGKILL, SIGTERM.
bool StopExit(int code) { return code == 0 || code == 130 || code == 137 || code == 143; }

Verdict JudgeTrainer(const PodFacts& pod, const NodeFacts* node, const JudgeContext& context) {
  const ContainerEnd& end = *pod.trainer;
  // The trainer causes these two itself, also on a node that is going away.
  if (end.reason == "OOMKilled") return {Fate::kFailed, reason::kOomKilled};
  if (end.reason == "Hung") return {Fate::kFailed, reason::kTrainerHung};
  if (PlatformReason(pod.status_reason)) return {Fate::kDisrupted, reason::kEvicted};
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
  if (!pod.agent && end.at && context.now < *end.at + kLastWords) return {};
  return {Fate::kFailed, reason::kEndedBeforeTarget};
}

Verdict JudgeAgent(const PodFacts& pod, const JudgeContext& context) {
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
  if (pod.deleted) return {Fate::kDisrupted, reason::kPodDeleted};
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
  if (pod.agent) return JudgeAgent(pod, context);
  // No container ended, so kubelet refused the pod before any of them ran.
  if (pod.phase == PodPhase::kFailed) {
    if (PlatformReason(pod.status_reason)) return {Fate::kDisrupted, reason::kEvicted};
    return {Fate::kFailed, reason::kCannotStart};
  }
  if (node != nullptr && node->not_ready_since &&
      context.now >= GivenUpAt(*node, context.nodes_heard_since, context.tolerated_unreachable)) {
    return {Fate::kDisrupted, reason::kNodeNotReady};
  }
  if (marked) return {Fate::kMarked, reason::kNodeMarked};
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
  return *pod.trainer->at + kLastWords;
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
