// Objects as a real API server gives them, and the facts that are read off them.
#include "operator/core/observe/observe.h"

#include <gtest/gtest.h>

#include "operator/core/decide/classify.h"
#include "operator/core/job/rfc3339.h"
#include "operator/core/pods/node_marks.h"
#include "operator/core/pods/pod_builder.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

WallTime At(const char* text) { return *ParseInstant(text); }

json Pod() {
  return json::parse(R"({
    "metadata": {"name": "charlm-3-2", "namespace": "ml", "uid": "p-1", "resourceVersion": "812",
      "creationTimestamp": "2026-11-21T10:00:00Z",
      "labels": {"crowdsurf.io/worker-index": "3", "crowdsurf.io/incarnation": "2"},
      "annotations": {"crowdsurf.io/capacity": "{\"type\":\"OnDemand\"}", "crowdsurf.io/seeds": "a:1\n"},
      "ownerReferences": [{"kind": "TrainingJob", "name": "charlm", "uid": "u-1", "controller": true}]},
    "spec": {"nodeName": "node-1", "containers": [
      {"name": "main", "env": [{"name": "CROWDSURF_WORKER", "value": "charlm-3-2"}]},
      {"name": "injected"}]},
    "status": {"phase": "Running", "podIP": "10.244.1.7", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:00:09Z"}],
      "initContainerStatuses": [{"name": "crowdsurf-agent", "state": {"running": {}}}],
      "containerStatuses": [{"name": "injected", "state": {"terminated": {"exitCode": 3}}},
                            {"name": "main", "state": {"running": {}}}]}})");
}

TEST(ObservePod, AKeyIsOfTextsOnly) {
  EXPECT_EQ(KeyOf({{"metadata", {{"name", "a"}}}}), "a");
  EXPECT_EQ(KeyOf({{"metadata", {{"name", 7}, {"namespace", "n"}}}}), "");
  EXPECT_EQ(KeyOf({{"metadata", nullptr}}), "");
}

TEST(ObservePod, ReadsWhoItIsWhereItRunsAndSinceWhen) {
  const auto entry = ObservePod(Pod());
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->job, "ml/charlm");
  EXPECT_EQ(VersionOf(Pod()), 812u);
  EXPECT_EQ(KeyOf(Pod()), "ml/" + entry->facts.name);
  const PodFacts& facts = entry->facts;
  EXPECT_EQ(facts.index, 3);
  EXPECT_EQ(facts.incarnation, 2);
  EXPECT_EQ(facts.phase, PodPhase::kRunning);
  EXPECT_EQ(facts.capacity, CapacityType::kOnDemand);
  EXPECT_EQ(facts.node, "node-1");
  EXPECT_EQ(facts.ready_since, At("2026-11-21T10:00:09Z"));
  EXPECT_EQ(facts.address, "10.244.1.7:7946");
  EXPECT_EQ(entry->http, "10.244.1.7:7948");
  EXPECT_EQ(facts.Annotation(kSeedsAnnotation), "a:1\n");
  EXPECT_FALSE(facts.trainer.has_value())
      << "a container that others inject is ignored: pod-lifecycle 4.5";
}

TEST(ObservePod, TheTrainersEndIsReadFromItsContainerNotFromThePhase) {  // pod-lifecycle 2.2
  json pod = Pod();
  pod["status"]["containerStatuses"][1]["state"] = {
      {"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}, {"message", "last words"}}}};
  const PodFacts facts = ObservePod(pod)->facts;
  ASSERT_TRUE(facts.trainer.has_value());
  EXPECT_EQ(facts.trainer->exit_code, 137);
  EXPECT_EQ(facts.trainer->reason, "OOMKilled");
  EXPECT_EQ(facts.trainer->output, "last words");
  EXPECT_EQ(facts.phase, PodPhase::kRunning);
}

TEST(ObservePod, DeletionIsWhenItWasToldNotWhenTheGraceIsOver) {
  json pod = Pod();
  pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:05:25Z";
  pod["metadata"]["deletionGracePeriodSeconds"] = 25;
  const PodFacts facts = ObservePod(pod)->facts;
  EXPECT_EQ(facts.deleted, At("2026-11-21T10:05:00Z"));
  EXPECT_EQ(facts.grace, Seconds(25));
}

TEST(ObservePod, WaitingAndDisruptionHaveReasons) {
  struct Case {
    const char* path;
    json value;
    std::string_view waiting;
    const char* disruption;
  };
  const Case cases[] = {
      {"/status/containerStatuses/1/state",
       {{"waiting", {{"reason", "ImagePullBackOff"}}}},
       reason::kImagePull,
       ""},
      {"/status/containerStatuses/1/state",
       {{"waiting", {{"reason", "CreateContainerConfigError"}}}},
       reason::kCannotStart,
       ""},
      {"/status/conditions/0",
       {{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}},
       reason::kUnschedulable,
       ""},
      {"/status/conditions/0",
       {{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "DeletionByTaintManager"}},
       "",
       "DeletionByTaintManager"},
  };
  for (const Case& c : cases) {
    json pod = Pod();
    pod[json::json_pointer(c.path)] = c.value;
    const PodFacts facts = ObservePod(pod)->facts;
    EXPECT_EQ(facts.waiting_reason, c.waiting) << c.value;
    EXPECT_EQ(facts.disruption_target, c.disruption) << c.value;
  }
}

TEST(ObservePod, EveryPhaseAndEveryWaitOfKubeletHasItsMeaning) {
  json pod = Pod();
  for (const auto& [text, phase] : {std::pair("Pending", PodPhase::kPending),
                                    {"Running", PodPhase::kRunning},
                                    {"Succeeded", PodPhase::kSucceeded},
                                    {"Failed", PodPhase::kFailed},
                                    {"", PodPhase::kPending},
                                    {"Unknown", PodPhase::kUnknown}}) {
    pod["status"]["phase"] = text;
    EXPECT_EQ(ObservePod(pod)->facts.phase, phase) << text;
  }
  for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
    for (const auto& [waiting, reason] : {std::pair("ErrImagePull", reason::kImagePull),
                                          {"InvalidImageName", reason::kImagePull},
                                          {"ErrImageNeverPull", reason::kImagePull},
                                          {"ImageInspectError", reason::kImagePull},
                                          {"CreateContainerError", reason::kCannotStart},
                                          {"RunContainerError", reason::kCannotStart},
                                          {"ContainerCreating", std::string_view()},
                                          {"PodInitializing", std::string_view()}}) {
      pod = Pod();
      pod["status"][list][0]["state"] = {{"waiting", {{"reason", waiting}, {"message", "words"}}}};
      EXPECT_EQ(ObservePod(pod)->facts.waiting_reason, reason) << waiting;
      EXPECT_EQ(ObservePod(pod)->facts.waiting_message, reason.empty() ? "" : "words");
    }
  }
}

TEST(ObservePod, AWorkerThatOnceRanHasBeenReady) {  // it may have something to hand in
  json pod = Pod();
  pod["status"]["conditions"][0]["status"] = "False";
  PodFacts facts = ObservePod(pod)->facts;
  EXPECT_FALSE(facts.ready_since.has_value());
  EXPECT_TRUE(facts.ever_ready) << "its trainer runs";
  json& state = pod["status"]["containerStatuses"][1]["state"];
  state = {{"waiting", {{"reason", "PodInitializing"}}}};
  EXPECT_FALSE(ObservePod(pod)->facts.ever_ready);
  state = {{"terminated", {{"reason", "Error"}}}};
  facts = ObservePod(pod)->facts;
  EXPECT_TRUE(facts.ever_ready);
  EXPECT_EQ(facts.trainer->exit_code, 255) << "an end without a code is one that nobody saw";
}

TEST(ObservePod, AnIPv6AddressStandsInBrackets) {
  json pod = Pod();
  pod["status"]["podIP"] = "fd00::7";
  EXPECT_EQ(ObservePod(pod)->facts.address, "[fd00::7]:7946");
  EXPECT_EQ(ObservePod(pod)->http, "[fd00::7]:7948");
  pod["status"].erase("podIP");
  EXPECT_EQ(ObservePod(pod)->facts.address + ObservePod(pod)->http, "");
}

TEST(ObservePod, AnAgentsLastWordsSayWhetherTheTargetWasMet) {
  json pod = Pod();
  json& ended = pod["status"]["initContainerStatuses"][0]["state"];
  ended = {{"terminated",
            {{"exitCode", 0},
             {"finishedAt", "2026-11-21T10:09:00Z"},
             {"message",
              R"({"reason":"target met","averaging":7,"samples":900.0,"step":30,"loss":2.5})"}}}};
  const PodFacts facts = ObservePod(pod)->facts;
  ASSERT_TRUE(facts.last_words.has_value());
  EXPECT_EQ(*facts.last_words, (Progress{900, 30, 2.5, 7, true}));
  EXPECT_EQ(facts.agent->at, At("2026-11-21T10:09:00Z"));
  for (const char* odd : {"", "{}", "[1]", "{\"reason\": 3}", "killed"}) {
    ended["terminated"]["message"] = odd;
    EXPECT_FALSE(ObservePod(pod)->facts.last_words.has_value()) << odd;
  }
  ended["terminated"]["message"] = R"({"reason":"asked to leave","samples":-1,"step":1e300})";
  EXPECT_EQ(ObservePod(pod)->facts.last_words, Progress{});
}

// Kubelet starts a sidecar again while another container runs: nobody may see it between its lives.
TEST(ObservePod, AnAgentThatBeganAgainAfterTheTargetHasEnded) {
  json pod = Pod();
  json& agent = pod["status"]["initContainerStatuses"][0];
  pod["status"]["containerStatuses"][0]["state"] = {{"running", json::object()}};
  json& trainer = pod["status"]["containerStatuses"][1]["state"];
  agent["state"] = {{"running", {{"startedAt", "2026-11-21T10:09:01Z"}}}};
  agent["lastState"] = {{"terminated",
                         {{"exitCode", 0},
                          {"finishedAt", "2026-11-21T10:09:00Z"},
                          {"message", R"({"reason":"target met","samples":900})"}}}};
  trainer = {{"running", json::object()}};
  ASSERT_TRUE(ObservePod(pod)->facts.last_words.has_value());
  EXPECT_TRUE(ObservePod(pod)->facts.last_words->target_met);
  EXPECT_FALSE(ObservePod(pod)->facts.agent.has_value()) << "its trainer may still come to its end";
  trainer = {{"terminated", {{"exitCode", 0}, {"finishedAt", "2026-11-21T10:09:02Z"}}}};
  const PodFacts facts = ObservePod(pod)->facts;
  ASSERT_TRUE(facts.agent.has_value());
  EXPECT_EQ(facts.agent->at, At("2026-11-21T10:09:00Z"));
  EXPECT_TRUE(HasEnded(facts));
  agent["lastState"]["terminated"]["message"] = R"({"reason":"asked to leave"})";
  EXPECT_FALSE(ObservePod(pod)->facts.agent.has_value()) << "it crashed or left, and works again";
}

TEST(ObservePod, AClaimThatIsMissingIsNoLackOfSpotMachines) {
  json pod = Pod();
  pod["metadata"]["annotations"]["crowdsurf.io/capacity"] = R"({"type":"Spot"})";
  const auto reason = [&](const char* message) {
    pod["status"]["conditions"][0] = {{"type", "PodScheduled"},
                                      {"status", "False"},
                                      {"reason", "Unschedulable"},
                                      {"message", message}};
    return ObservePod(pod)->facts.waiting_reason;
  };
  EXPECT_EQ(reason("0/3 nodes are available: 3 Insufficient cpu."), reason::kNoSpotCapacity);
  EXPECT_EQ(reason("persistentvolumeclaim \"models\" not found"), reason::kUnschedulable);
  EXPECT_EQ(reason("pod has unbound immediate PersistentVolumeClaims"), reason::kUnschedulable);
}

TEST(ObservePod, OddObjectsAreNoWorkersAndNeverThrow) {
  json pod = Pod();
  pod["metadata"].erase("ownerReferences");
  EXPECT_FALSE(ObservePod(pod).has_value());
  pod = Pod();
  pod["metadata"]["labels"]["crowdsurf.io/worker-index"] = "3x";
  EXPECT_FALSE(ObservePod(pod).has_value());
  // Every member replaced by something of another type, one at a time.
  const json flat = Pod().flatten();
  for (const auto& [path, value] : flat.items()) {
    for (const json& odd : {json(nullptr), json(7), json("x"), json::array(), json::object()}) {
      json broken = Pod();
      broken[json::json_pointer(path)] = odd;
      (void)ObservePod(broken);
      (void)ObserveNode(broken);
      (void)ObserveJob(broken);
    }
  }
}

TEST(ObserveNode, EveryRowOfTheTableIsFoundAndNothingElse) {
  EXPECT_FALSE(ObserveNode({{"metadata", {{"name", "n"}}}})->facts.mark.has_value());
  for (const MarkRow& row : MarkTable()) {
    json node = {{"metadata", {{"name", "n"}}}};
    const std::string value = row.value;
    if (row.kind == MarkKind::kTaint) {
      node["spec"]["taints"].push_back(
          {{"key", row.key}, {"value", value}, {"timeAdded", "2026-11-21T10:00:00Z"}});
    } else if (row.kind == MarkKind::kLabel) {
      node["metadata"]["labels"][row.key] = value;
    } else {
      node["status"]["conditions"].push_back(
          {{"type", row.key}, {"status", value}, {"lastTransitionTime", "2026-11-21T10:00:00Z"}});
    }
    const auto mark = ObserveNode(node)->facts.mark;
    ASSERT_TRUE(mark.has_value()) << row.signal;
    EXPECT_EQ(mark->signal, row.signal);
    EXPECT_EQ(mark->weak, row.weak);
    EXPECT_EQ(mark->deadline.has_value(), row.seconds > 0) << row.signal;
  }
}

TEST(ObserveNode, ACordonAloneIsWeakAndGivesWayToARealMark) {  // pod-lifecycle 4.7
  json node = {{"spec", {{"unschedulable", true}}}};
  EXPECT_TRUE(ObserveNode(node)->facts.mark->weak);
  node["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z";
  EXPECT_EQ(ObserveNode(node)->facts.mark->signal, "NodeDeleted");
}

TEST(ObserveNode, NotReadySinceItsCondition) {
  json node;
  node["metadata"]["labels"]["karpenter.sh/capacity-type"] = "spot";
  node["status"]["conditions"] = {
      {{"type", "Ready"}, {"status", "Unknown"}, {"lastTransitionTime", "2026-11-21T10:00:00Z"}}};
  EXPECT_EQ(ObserveNode(node)->facts.not_ready_since, At("2026-11-21T10:00:00Z"));
  EXPECT_TRUE(ObserveNode(node)->spot);
}

json JobObject() {
  return json::parse(R"({
    "metadata": {"name": "charlm", "namespace": "ml", "uid": "u-1", "generation": 3},
    "spec": {"replicas": 4, "target": {"samples": 1000},
             "template": {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}},
    "status": {"progress": {"samples": 430}}})");
}

TEST(ObserveJob, ReadsSpecWithDefaultsAndStatus) {
  const auto entry = ObserveJob(JobObject());
  ASSERT_TRUE(entry && entry->violations.empty());
  EXPECT_EQ(entry->job.generation, 3);
  EXPECT_EQ(entry->job.spec.replicas, 4);
  EXPECT_EQ(entry->job.spec.managed_by, kManagedByUs);
  EXPECT_EQ(entry->status.progress.samples, 430u);
}

TEST(ObserveJob, AFaultySpecIsViolationsAndNoSpec) {
  json object = JobObject();
  object["spec"]["averaging"]["groupSize"] = 1;
  const auto entry = ObserveJob(object);
  ASSERT_TRUE(entry.has_value());
  ASSERT_EQ(entry->violations.size(), 1u);
  EXPECT_NE(entry->violations[0].find("spec.averaging.groupSize"), std::string::npos);
}

TEST(ObserveJob, FieldsThatDoNotActAreWarningsAndNoViolations) {
  json object = JobObject();
  EXPECT_EQ(ObserveJob(object)->warnings, std::vector<std::string>());
  object["spec"]["averaging"] = {{"strategy", "AllReduce"}, {"groupSize", 4}};
  const auto entry = ObserveJob(object);
  EXPECT_EQ(entry->violations, std::vector<std::string>());
  ASSERT_EQ(entry->warnings.size(), 1u);
  EXPECT_NE(entry->warnings[0].find("spec.averaging.groupSize: is ignored"), std::string::npos);
}

TEST(ObserveJob, AFaultySpecStillSaysWhoManagesItAndWhetherItIsSuspended) {
  json object = JobObject();
  object["spec"]["averaging"]["groupSize"] = 1;
  EXPECT_FALSE(ObserveJob(object)->job.spec.suspend);
  EXPECT_EQ(ObserveJob(object)->job.spec.managed_by, kManagedByUs);
  object["spec"]["suspend"] = true;
  object["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  EXPECT_TRUE(ObserveJob(object)->job.spec.suspend);
  EXPECT_EQ(ObserveJob(object)->job.spec.managed_by, "kueue.x-k8s.io/multikueue");
  object["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z";
  EXPECT_TRUE(ObserveJob(object)->job.deleting);
}

TEST(ObserveJob, WithoutAnIdentityItIsNone) {
  for (const char* part : {"name", "namespace", "uid"}) {
    json object = JobObject();
    object["metadata"].erase(part);
    EXPECT_FALSE(ObserveJob(object).has_value()) << part;
  }
}

TEST(ObserveJob, ViolationsAreOneMessageThatAnEventHolds) {
  EXPECT_EQ(WhatIsWrong({"a", "b"}), "a; b");
  EXPECT_EQ(WhatIsWrong({}), "");
  EXPECT_LE(WhatIsWrong(std::vector<std::string>(50, std::string(100, 'x'))).size(), 1024u);
  EXPECT_GE(WhatIsWrong(std::vector<std::string>(50, std::string(100, 'x'))).size(), 800u);
}

TEST(ShownStatus, SaysStateSelectorAndPercent) {
  const auto entry = ObserveJob(JobObject());
  TrainingJobStatus status = entry->status;
  json shown = ShownStatus(entry->job, status);
  EXPECT_EQ(shown["state"], "Starting");
  EXPECT_EQ(shown["selector"], "crowdsurf.io/job-uid=u-1");
  EXPECT_EQ(shown["progress"]["percent"], "43%");
  status.progress.samples = 2000;  // sampled, but not agreed
  EXPECT_EQ(ShownStatus(entry->job, status)["progress"]["percent"], "99%");
  status.conditions = {{ConditionType::kSucceeded, true, "TargetMet", "", 3, WallTime()}};
  status.progress.target_met = true;
  shown = ShownStatus(entry->job, status);
  EXPECT_EQ(shown["state"], "Succeeded");
  EXPECT_EQ(shown["progress"]["percent"], "100%");
}

TEST(MergeDiff, AppliedToTheOldItGivesTheNew) {
  const json documents[] = {json::object(),
                            {{"a", 1}},
                            {{"a", 2}, {"b", {{"x", 1}, {"y", 2}}}},
                            {{"b", {{"y", 3}}}},
                            {{"b", {1, 2}}}};
  for (const json& before : documents) {
    for (const json& after : documents) {
      json patched = before;
      patched.merge_patch(MergeDiff(before, after));  // the library's own RFC 7386
      EXPECT_EQ(patched, after) << before << " -> " << after;
      EXPECT_EQ(MergeDiff(before, after).empty(), before == after);
    }
  }
}

}  // namespace
}  // namespace crowdsurf::controller
