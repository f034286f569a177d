// What the end of a pod means: facts on the left, on the right the fate that docs/pod-lifecycle.md
// gives them.
#include "operator/core/decide/classify.h"

#include <gtest/gtest.h>

namespace crowdsurf::controller {
namespace {

constexpr WallTime kNow = WallTime::FromNanoseconds(1'000'000'000'000);

struct Case {
  const char* what;  // the rule, with its place in docs/pod-lifecycle.md, or, K, in what was learnt
                     // from other operators
  PodFacts pod;
  Fate fate;
  std::string_view reason;
  NodeFacts node = {};
  bool node_gone = false;
  bool target_met = false;
  SuccessCriterion success = SuccessCriterion::kTargetReached;
};

PodFacts Running() {
  PodFacts pod;
  pod.name = "job-0-1";
  pod.node = "n";
  pod.phase = PodPhase::kRunning;
  pod.ever_ready = true;
  pod.ready_since = kNow - Seconds(5);
  return pod;
}

PodFacts Ended(int code, std::string why = "", PodPhase phase = PodPhase::kRunning) {
  PodFacts pod = Running();
  pod.phase = phase;
  pod.trainer = ContainerEnd{code, std::move(why), ""};
  return pod;
}

PodFacts Refused(std::string why) {
  PodFacts pod;
  pod.name = "job-0-1";
  pod.node = "n";
  pod.phase = PodPhase::kFailed;
  pod.status_reason = std::move(why);
  return pod;
}

PodFacts Deleted(PodFacts pod) {
  pod.deleted = kNow - Seconds(1);
  return pod;
}

PodFacts With(PodFacts pod, void (*change)(PodFacts&)) {
  change(pod);
  return pod;
}

const NodeFacts kMarkedNode{std::nullopt, std::nullopt,
                            Mark{"SpotInterruption", kNow + Seconds(20), false}};
const NodeFacts kCordoned{std::nullopt, std::nullopt, Mark{"Unschedulable", std::nullopt, true}};
const NodeFacts kFrozen{kNow - Seconds(40), std::nullopt, std::nullopt};
const NodeFacts kJustFrozen{kNow - Seconds(5), std::nullopt, std::nullopt};
const NodeFacts kUnheard{kNow - Seconds(40), kNow - Seconds(9), std::nullopt};

using enum Fate;

const std::vector<Case> kCases = {
    {"a worker that runs is alive", Running(), kAlive, ""},
    {"pod-lifecycle 4.1: deletionTimestamp is never success, whatever its phase",
     Deleted(Ended(0, "", PodPhase::kSucceeded)),
     kDisrupted,
     reason::kPodDeleted,
     {},
     false,
     true},
    {"pod-lifecycle 4.1: deletionTimestamp is never failure", Deleted(Ended(1)), kDisrupted,
     reason::kPodDeleted},
    {"pod-lifecycle 4.1: DisruptionTarget is never failure",
     With(Ended(1), [](PodFacts& p) { p.disruption_target = "PreemptionByScheduler"; }), kDisrupted,
     reason::kEvicted},
    {"pod-lifecycle 4.2: success is exit 0 and the target reached",
     Ended(0),
     kSucceeded,
     reason::kTargetMet,
     {},
     false,
     true},
    {"pod-lifecycle 4.2: exit 0 before the target is no success", Ended(0), kFailed,
     reason::kEndedBeforeTarget},
    {"pod-lifecycle 4.2: exit 0 is success where the policy says so",
     Ended(0),
     kSucceeded,
     reason::kTargetMet,
     {},
     false,
     false,
     SuccessCriterion::kAllSucceeded},
    {"pod-lifecycle 4.3: exit 255 after NotReady is a disruption", Ended(255), kDisrupted,
     reason::kNodeNotReady, kJustFrozen},
    {"pod-lifecycle 4.3: exit 255 on a healthy node is the user's own", Ended(255), kFailed,
     reason::kExitCode},
    {"pod-lifecycle 4.4: OOMKilled is a failure with its own reason", Ended(137, "OOMKilled"),
     kFailed, reason::kOomKilled},
    {"a trainer that hung and was ended is a failure with its own reason", Ended(137, "Hung"),
     kFailed, reason::kTrainerHung},
    {"K2.3.6: OOMKilled stays a failure on a marked node", Ended(137, "OOMKilled"), kFailed,
     reason::kOomKilled, kMarkedNode},
    {"K2.3.6: exit 137 with a node mark is a disruption", Ended(137), kDisrupted,
     reason::kNodeMarked, kMarkedNode},
    {"K2.3.6: exit 143 with a node mark is a disruption", Ended(143), kDisrupted,
     reason::kNodeMarked, kMarkedNode},
    {"K2.3.6: exit 137 without a mark is a failure", Ended(137), kFailed, reason::kExitCode},
    {"K2.3.6: exit 1 with a mark is a failure", Ended(1), kFailed, reason::kExitCode, kMarkedNode},
    {"pod-lifecycle 1.7: who leaves politely under a notice is disrupted, not done", Ended(0),
     kDisrupted, reason::kNodeMarked, kMarkedNode},
    {"K2.2: graceful node shutdown",
     With(Ended(143, "", PodPhase::kFailed), [](PodFacts& p) { p.status_reason = "Terminated"; }),
     kDisrupted, reason::kEvicted},
    {"K2.3.6: OutOfcpu is the platform's", Refused("OutOfcpu"), kDisrupted, reason::kRefusedByNode},
    {"pod-lifecycle 4.10: so is every other word of a kubelet about a pod that never ran",
     Refused("TopologyAffinityError"), kDisrupted, reason::kRefusedByNode},
    {"also one that we do not know", Refused("SMTAlignmentError"), kDisrupted,
     reason::kRefusedByNode},
    {"but not one about the template", Refused("SysctlForbidden"), kFailed, reason::kCannotStart},
    {"a kubelet that started again refuses what ran",
     With(Ended(137, "", PodPhase::kFailed), [](PodFacts& p) { p.status_reason = "OutOfcpu"; }),
     kDisrupted, reason::kEvicted},
    {"pod-lifecycle 4.12: evicted for its own use: no DisruptionTarget, and it ran",
     With(Ended(137, "Error", PodPhase::kFailed),
          [](PodFacts& p) {
            p.status_reason = "Evicted";
            p.status_message = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\". ";
          }),
     kFailed, reason::kLimitExceeded},
    {"its init container did it",
     With(Refused("Evicted"),
          [](PodFacts& p) {
            p.status_message =
                "Container fetch exceeded its local ephemeral storage limit \"1Mi\".";
          }),
     kFailed, reason::kLimitExceeded},
    {"evicted for the node's want, by a kubelet that sets no condition",
     With(Ended(137, "Error", PodPhase::kFailed),
          [](PodFacts& p) {
            p.status_reason = "Evicted";
            p.status_message = "The node was low on resource: memory. ";
          }),
     kDisrupted, reason::kEvicted},
    {"refused at the door of a node under pressure",
     With(Refused("Evicted"),
          [](PodFacts& p) { p.status_message = "The node had condition: [DiskPressure]. "; }),
     kDisrupted, reason::kRefusedByNode},
    {"pod-lifecycle 4.12: the pod's own deadline",
     With(Ended(137, "Error", PodPhase::kFailed),
          [](PodFacts& p) { p.status_reason = "DeadlineExceeded"; }),
     kFailed, reason::kDeadlineExceeded},
    {"pod-lifecycle 4.13: a quick reboot: the runtime lost it, and the node is Ready again",
     Ended(255, "Unknown", PodPhase::kFailed), kDisrupted, reason::kContainerLost},
    {"a quick reboot: kubelet lost it", Ended(137, "ContainerStatusUnknown", PodPhase::kFailed),
     kDisrupted, reason::kContainerLost},
    {"a quick reboot while it started",
     With(Refused(""),
          [](PodFacts& p) {
            p.agent = ContainerEnd{255, "Unknown", ""};
          }),
     kDisrupted, reason::kContainerLost},
    {"pod-lifecycle 4.14: an init container of the user's that failed, not the agent that ended "
     "with the pod",
     With(Refused(""),
          [](PodFacts& p) {
            p.init = ContainerEnd{3, "Error", "bucket is gone"};
            p.agent = ContainerEnd{0, "Completed", ""};
          }),
     kFailed, reason::kInitContainer},
    {"a pod that failed before its trainer ran",
     With(Running(), [](PodFacts& p) { p.phase = PodPhase::kFailed; }), kFailed,
     reason::kCannotStart},
    {"the node vanished, whatever the exit says",
     Ended(1),
     kDisrupted,
     reason::kNodeGone,
     {},
     true},
    {"the node vanished under a running pod", Running(), kDisrupted, reason::kNodeGone, {}, true},
    {"pod-lifecycle 3.10: NotReady within toleration is not yet a loss", Running(), kAlive, "",
     kJustFrozen},
    {"pod-lifecycle 3.10: NotReady beyond toleration is a disruption", Running(), kDisrupted,
     reason::kNodeNotReady, kFrozen},
    {"pod-lifecycle 3.10: NotReady, but its Lease is renewed: the control plane does not hear",
     Running(), kAlive, "", kUnheard},
    {"pod-lifecycle 3.6: confirmed reports of peers",
     With(Running(), [](PodFacts& p) { p.reported_dead = true; }), kDisrupted,
     reason::kPeersReportedDead},
    {"pod-lifecycle 4.7: a cordon alone is a weak mark", Running(), kAlive, "", kCordoned},
    {"a strong mark", Running(), kMarked, reason::kNodeMarked, kMarkedNode},
    {"pod-lifecycle 2.4: the agent's tenth crash costs a worker, not the job",
     With(Running(),
          [](PodFacts& p) {
            p.agent = ContainerEnd{1, "", ""};
          }),
     kDisrupted, reason::kAgentCrashed},
    {"pod-lifecycle 2.7: an agent that never came up is a failure",
     With(Running(),
          [](PodFacts& p) {
            p.agent = ContainerEnd{2, "", ""};
            p.ever_ready = false;
          }),
     kFailed, reason::kAgentNeverStarted},
    {"after the target agents leave before their trainers",
     With(Running(),
          [](PodFacts& p) {
            p.agent = ContainerEnd{0, "", ""};
          }),
     kAlive,
     "",
     {},
     false,
     true},
};

TEST(ClassifyTest, EveryRuleOfTheReferenceHolds) {
  for (const Case& c : kCases) {
    const JudgeContext context{kNow, c.success, c.target_met, Seconds(30)};
    const Verdict verdict = Classify(c.pod, c.node_gone ? nullptr : &c.node, context);
    EXPECT_EQ(verdict.fate, c.fate) << c.what;
    EXPECT_EQ(verdict.reason, c.reason) << c.what;
  }
}

TEST(FailureRulesTest, TheFirstRuleThatMatchesActs) {
  std::vector<FailureRule> rules(3);
  rules[0] = {"user asked", {42}, true, {}, FailureAction::kFailJob};
  rules[1] = {"all but one", {1}, false, {}, FailureAction::kIgnore};
  rules[2] = {"config", {}, true, {{"ConfigIssue", "True"}}, FailureAction::kReplaceWorker};
  EXPECT_EQ(ActionFor(rules, Ended(42)), FailureAction::kFailJob);
  EXPECT_EQ(ActionFor(rules, Ended(7)), FailureAction::kIgnore);
  EXPECT_EQ(ActionFor(rules, Ended(1)), FailureAction::kCount);
  PodFacts pod = Ended(1);
  pod.conditions = {{"ConfigIssue", "True"}};
  EXPECT_EQ(ActionFor(rules, pod), FailureAction::kReplaceWorker);
  EXPECT_EQ(ActionFor({}, pod), FailureAction::kCount);
}

}  // namespace
}  // namespace crowdsurf::controller
