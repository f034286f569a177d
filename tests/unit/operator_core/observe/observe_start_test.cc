// What holds a pod before its trainer runs, and what runs beside it, as an API server gives them.
#include <gtest/gtest.h>

#include "operator/core/observe/observe.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

json Pod(const char* restart_policy) {
  json pod = json::parse(R"({
    "metadata": {"name": "job-0-1", "namespace": "ml", "uid": "p",
      "annotations": {"crowdsurf.io/capacity": "{\"type\":\"Spot\"}"},
      "labels": {"crowdsurf.io/worker-index": "0", "crowdsurf.io/incarnation": "1"},
      "ownerReferences": [{"kind": "TrainingJob", "name": "job", "uid": "u", "controller": true}]},
    "spec": {"nodeName": "n",
      "initContainers": [{"name": "crowdsurf-agent", "restartPolicy": "Always"},
                         {"name": "mesh", "restartPolicy": "Always"}, {"name": "fetch"}],
      "containers": [{"name": "trainer", "env": [{"name": "CROWDSURF_WORKER", "value": "job-0-1"}]},
                     {"name": "logs"}]},
    "status": {"phase": "Pending",
      "initContainerStatuses": [{"name": "crowdsurf-agent", "state": {"running": {}}},
                                {"name": "mesh", "state": {"running": {}}},
                                {"name": "fetch", "state": {"running": {}}}],
      "containerStatuses": [{"name": "trainer", "state": {"waiting": {"reason": "PodInitializing"}}},
                            {"name": "logs", "state": {"waiting": {"reason": "PodInitializing"}}}]}})");
  pod["spec"]["restartPolicy"] = restart_policy;
  return pod;
}

const json kBadEnd = {{"exitCode", 3}, {"reason", "Error"}, {"message", "bucket is gone\n"}};

TEST(ObserveStart, AnInitContainerThatFailsEndsThePodAndIsNamed) {
  json pod = Pod("Never");
  EXPECT_FALSE(ObservePod(pod)->facts.init.has_value());
  pod["status"]["initContainerStatuses"][2]["state"] = {{"terminated", kBadEnd}};
  const PodFacts facts = ObservePod(pod)->facts;
  ASSERT_TRUE(facts.init.has_value());
  EXPECT_EQ(facts.init_name, "fetch");
  EXPECT_EQ(facts.init->exit_code, 3);
  EXPECT_EQ(facts.init->output, "bucket is gone\n");
  pod["status"]["initContainerStatuses"][2]["state"]["terminated"]["exitCode"] = 0;
  EXPECT_FALSE(ObservePod(pod)->facts.init.has_value());
}

TEST(ObserveStart, OneThatKubeletStartsAgainIsAReasonToWait) {
  for (const char* policy : {"OnFailure", "Never"}) {
    // Of a sidecar of somebody's also where the pod's own containers are never started again.
    const int which = policy == std::string("Never") ? 1 : 2;
    json pod = Pod(policy);
    json& status = pod["status"]["initContainerStatuses"][which];
    status["state"] = {{"terminated", kBadEnd}};
    PodFacts facts = ObservePod(pod)->facts;
    EXPECT_FALSE(facts.init.has_value()) << policy;
    EXPECT_EQ(facts.waiting_reason, "") << "it is started again at once, the first time";
    status["state"] = {{"waiting", {{"reason", "CrashLoopBackOff"}}}};
    status["lastState"] = {{"terminated", kBadEnd}};
    facts = ObservePod(pod)->facts;
    EXPECT_FALSE(facts.init.has_value()) << policy;
    EXPECT_EQ(facts.waiting_reason, reason::kInitContainer);
    EXPECT_EQ(facts.waiting_message,
              "init container " + std::string(which == 1 ? "mesh" : "fetch") +
                  " is in CrashLoopBackOff: it ended with exit code 3: bucket is gone\n");
  }
}

// Kubelet says CrashLoopBackOff in about half of the time: the words must not come and go with it.
TEST(ObserveStart, OneThatFailsAgainAndAgainIsSaidInAllOfItsStates) {
  const json kRuns = {{"running", json::object()}}, kEnded = {{"terminated", kBadEnd}};
  struct Row {
    bool sidecar;
    int restarts;
    json state;
    bool started, said;
  };
  for (const Row& row : {Row{false, 1, kEnded, false, true}, Row{false, 2, kRuns, false, true},
                         Row{true, 1, kEnded, false, true}, Row{true, 2, kRuns, false, true},
                         // It failed once, and may get on this time.
                         Row{false, 0, kEnded, false, false}, Row{false, 1, kRuns, false, false},
                         // It has got on.
                         Row{true, 2, kRuns, true, false},
                         Row{false, 2, {{"terminated", {{"exitCode", 0}}}}, false, false}}) {
    json pod = Pod("OnFailure");
    json& status = pod["status"]["initContainerStatuses"][row.sidecar ? 1 : 2];
    status["state"] = row.state;
    status["restartCount"] = row.restarts;
    status["started"] = row.started;
    if (row.restarts > 0) status["lastState"] = {{"terminated", kBadEnd}};
    const PodFacts facts = ObservePod(pod)->facts;
    EXPECT_EQ(facts.waiting_reason, row.said ? std::string(reason::kInitContainer) : "") << status;
    EXPECT_EQ(facts.waiting_message.find("bucket is gone") != std::string::npos, row.said)
        << status;
  }
}

TEST(ObserveStart, ATrainerThatKubeletStartsAgainHasEnded) {
  json pod = Pod("OnFailure");
  json& status = pod["status"]["containerStatuses"][0];
  status["state"] = {{"waiting", {{"reason", "CrashLoopBackOff"}}}};
  status["lastState"] = {{"terminated", kBadEnd}};
  ASSERT_TRUE(ObservePod(pod)->facts.trainer.has_value());
  EXPECT_EQ(ObservePod(pod)->facts.trainer->exit_code, 3);
}

TEST(ObserveStart, AContainerBesideTheTrainerIsSeenToRun) {
  json pod = Pod("Never");
  json& other = pod["status"]["containerStatuses"][1]["state"];
  other = {{"running", json::object()}};
  EXPECT_TRUE(ObservePod(pod)->facts.others_run);
  other = {{"terminated", {{"exitCode", 0}}}};
  EXPECT_FALSE(ObservePod(pod)->facts.others_run);
}

TEST(ObserveStart, KubeletsWordOfThePodIsKept) {
  json pod = Pod("Never");
  pod["status"]["reason"] = "Evicted";
  pod["status"]["message"] = "Usage of EmptyDir volume \"x\" exceeds the limit \"1Mi\". ";
  EXPECT_EQ(ObservePod(pod)->facts.status_reason, "Evicted");
  EXPECT_EQ(ObservePod(pod)->facts.status_message,
            "Usage of EmptyDir volume \"x\" exceeds the limit \"1Mi\". ");
}

std::string WhyNotPlaced(json pod, const char* why, const char* message) {
  pod["status"]["conditions"] = {
      {{"type", "PodScheduled"}, {"status", "False"}, {"reason", why}, {"message", message}}};
  return ObservePod(pod)->facts.waiting_reason;
}

// kubeflow/pipelines#13401: machines on demand cannot help what fits no machine.
TEST(ObserveStart, ANodeSelectorThatFitsNowhereIsNoLackOfSpotMachines) {
  constexpr char kNowhere[] =
      "0/3 nodes are available: 1 node(s) had untolerated taint "
      "{node-role.kubernetes.io/control-plane: }, 2 node(s) didn't match Pod's node "
      "affinity/selector. preemption: 0/3 nodes are available";
  EXPECT_EQ(WhyNotPlaced(Pod("Never"), "Unschedulable", kNowhere), reason::kUnschedulable);
  EXPECT_EQ(WhyNotPlaced(Pod("Never"), "Unschedulable",
                         "0/2 nodes are available: 2 node(s) had volume node affinity conflict."),
            reason::kUnschedulable);
  EXPECT_EQ(WhyNotPlaced(Pod("Never"), "Unschedulable",
                         "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) didn't "
                         "match Pod's node affinity/selector."),
            reason::kNoSpotCapacity)
      << "the node that matches is full";
  json spot = Pod("Never");
  spot["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
      ["nodeSelectorTerms"] = {
          {{"matchExpressions", {{{"key", "karpenter.sh/capacity-type"}, {"operator", "In"}}}}}};
  EXPECT_EQ(WhyNotPlaced(spot, "Unschedulable", kNowhere), reason::kNoSpotCapacity)
      << "what does not match may be the wish for spot itself";
}

TEST(ObserveStart, APodThatAGateHoldsSaysSo) {
  EXPECT_EQ(WhyNotPlaced(Pod("Never"), "SchedulingGated",
                         "Scheduling is blocked due to non-empty scheduling gates"),
            reason::kSchedulingGated);
}

}  // namespace
}  // namespace crowdsurf::controller
