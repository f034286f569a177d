// What the operator makes of jobs, losses and bad manifests, against a real kube-apiserver.
#include "tests/cluster/operator_fixture.h"

namespace crowdsurf::controller {
namespace {

using std::chrono::steady_clock;

TEST_F(OperatorTest, AJobBecomesPodsThatItOwnsAndAStatusThatTellsTheStory) {
  StartOperator();
  const auto job = client_->Create(jobs_, Job(3));
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(Eventually("three pods", [&] { return Pods().size() == 3; }));
  EXPECT_EQ(Names(), "job-0-1 job-1-1 job-2-1 ");
  const Json pod = Pods()["job-1-1"];
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], (*job)["metadata"]["uid"]);
  EXPECT_EQ(pod["spec"]["initContainers"][0]["image"], "crowdsurf/worker:test");
  EXPECT_TRUE(client_->Get(core_ + "services/job-peers").ok());
  EXPECT_FALSE(pod["metadata"]["annotations"].value("crowdsurf.io/ca", "").empty());
  ASSERT_TRUE(Eventually("status", [&] { return JobStatus().value("replicas", 0) == 3; }));
  for (const char* name : {"job-0-1", "job-1-1", "job-2-1"}) Play(name, "Running", {});
  ASSERT_TRUE(Eventually("Running", [&] { return JobStatus().value("state", "") == "Running"; }));
  EXPECT_EQ(JobStatus()["readyReplicas"], 3);
}

TEST_F(OperatorTest, AWorkerThatFailsIsReplacedUnderANewNameAndCounted) {
  StartOperator();
  ASSERT_TRUE(client_->Create(jobs_, Job(1)).ok());
  ASSERT_TRUE(Eventually("a pod", [&] { return Pods().contains("job-0-1"); }));
  Play("job-0-1", "Running", {});
  Play("job-0-1", "Failed", 3);
  ASSERT_TRUE(Eventually("its replacement", [&] { return Pods().contains("job-0-2"); }));
  ASSERT_TRUE(Eventually(
      "counted", [&] { return JobStatus().value("/failures/total"_json_pointer, 0) == 1; }));
  EXPECT_EQ(JobStatus()["disruptions"]["total"], 0);
}

TEST_F(OperatorTest, AMarkOnANodeIsANoticeAndAReplacementBeforeTheDeath) {
  const std::string node = space_ + "-node";
  AddNode(node);
  StartOperator();
  ASSERT_TRUE(client_->Create(jobs_, Job(1)).ok());
  ASSERT_TRUE(Eventually("a pod", [&] { return Pods().contains("job-0-1"); }));
  Bind("job-0-1", node);
  Play("job-0-1", "Running", {});
  ASSERT_TRUE(Eventually("Running", [&] { return JobStatus().value("state", "") == "Running"; }));
  ASSERT_TRUE(client_
                  ->Patch("/api/v1/nodes/" + node, PatchType::kMerge,
                          {{"spec",
                            {{"taints",
                              {{{"key", "cloud.google.com/impending-node-termination"},
                                {"effect", "NoSchedule"}}}}}}})
                  .ok());
  ASSERT_TRUE(Eventually("mark to notice", [&] {
    const Json annotations = Pods()["job-0-1"]["metadata"]["annotations"];
    return annotations.value("crowdsurf.io/notice", "").find("ImpendingTermination") !=
           std::string::npos;
  }));
  ASSERT_TRUE(Eventually("replacement", [&] { return Pods().contains("job-0-2"); }));
  ASSERT_TRUE(Eventually("counted once", [&] {
    return JobStatus().value("/disruptions/total"_json_pointer, 0) == 1;
  }));
  EXPECT_TRUE(Pods().contains("job-0-1")) << "telling is never deleting";
  EXPECT_EQ(JobStatus()["failures"]["total"], 0);
}

TEST_F(OperatorTest, GuardsFollowTheSpecAndAUsersOwnAreLeftAlone) {
  const std::string budget =
      "/apis/policy/v1/namespaces/" + space_ + "/poddisruptionbudgets/job-workers";
  const std::string policy =
      "/apis/networking.k8s.io/v1/namespaces/" + space_ + "/networkpolicies/job-workers";
  // A user's own of that name, which the spec does not ask for.
  ASSERT_TRUE(client_
                  ->Create("/apis/networking.k8s.io/v1/namespaces/" + space_ + "/networkpolicies",
                           {{"metadata", {{"name", "job-workers"}}},
                            {"spec", {{"podSelector", Json::object()}}}})
                  .ok());
  StartOperator();
  Json job = Job(2);
  job["spec"]["disruption"] = {{"podDisruptionBudget", {{"maxUnavailable", 1}}}};
  ASSERT_TRUE(client_->Create(jobs_, job).ok());
  ASSERT_TRUE(Eventually("a budget", [&] { return client_->Get(budget).ok(); }));
  EXPECT_EQ((*client_->Get(budget))["spec"]["maxUnavailable"], 1);
  ASSERT_TRUE(client_
                  ->Patch(jobs_ + "/job", PatchType::kMerge,
                          {{"spec", {{"disruption", {{"podDisruptionBudget", nullptr}}}}}})
                  .ok());
  EXPECT_TRUE(
      Eventually("no budget", [&] { return absl::IsNotFound(client_->Get(budget).status()); }));
  EXPECT_TRUE(client_->Get(policy).ok());
}

TEST_F(OperatorTest, AWorkerThatItsPeersReportIsReplacedUnlessItsAgentAnswers) {
  StartOperator();
  ASSERT_TRUE(client_->Create(jobs_, Job(5)).ok());
  ASSERT_TRUE(Eventually("five pods", [&] { return Pods().size() == 5; }));
  for (const auto& [name, pod] : Pods()) Play(name, "Running", {});
  ASSERT_TRUE(
      Eventually("all of them train", [&] { return JobStatus().value("readyReplicas", 0) == 5; }));
  const auto report = [&](const std::string& reporter, const std::string& dead) {
    const std::string uid = Pods().at(reporter)["metadata"]["uid"];
    EXPECT_TRUE(operator_->cluster().PostReport({uid, space_, {dead}}));
  };
  operator_->agents_answer = true;
  report("job-1-1", "job-3-1");
  report("job-2-1", "job-3-1");
  report("job-1-1", "job-0-1");
  report("job-1-1", "job-0-1");
  Play("job-4-1", "Running", 1);
  ASSERT_TRUE(Eventually("who failed is replaced", [&] { return Pods().contains("job-4-2"); }));
  EXPECT_TRUE(Pods().contains("job-3-1")) << "it answered the operator";
  EXPECT_TRUE(Pods().contains("job-0-1")) << "one worker alone said so";
  operator_->agents_answer = false;
  report("job-2-1", "job-0-1");
  ASSERT_TRUE(Eventually("its replacement", [&] {
    const auto pods = Pods();
    return pods.contains("job-0-2") && !pods.contains("job-0-1");
  }));
  ASSERT_TRUE(Eventually("it is counted", [&] {
    const Json disruptions = JobStatus().value("disruptions", Json::object());
    return disruptions.value("byReason", Json::object()).value("PeersReportedDead", 0) == 1;
  }));
}

// pod-lifecycle 3.2
TEST_F(OperatorTest, AnOperatorKilledAtAnyTimeMakesNoWorkerTwice) {
  ASSERT_TRUE(client_->Create(jobs_, Job(20)).ok());
  for (int life = 0; life < 6; ++life) {
    StartOperator();
    // Time itself is tested: each life is killed at another instant of its work.
    std::this_thread::sleep_for(std::chrono::milliseconds(30 + 40 * life));
    KillOperator();
    for (const auto& [name, pod] : Pods()) EXPECT_EQ(name.substr(name.size() - 2), "-1") << name;
  }
  StartOperator();
  ASSERT_TRUE(Eventually("all pods", [&] { return Pods().size() == 20; }));
  ASSERT_TRUE(Eventually("status", [&] { return JobStatus().value("replicas", 0) == 20; }));
  EXPECT_EQ(Pods().size(), 20u);
  for (const auto& [name, pod] : Pods()) EXPECT_EQ(name.substr(name.size() - 2), "-1") << name;
}

// pod-lifecycle 8.3
TEST_F(OperatorTest, AnUpgradedOperatorKeepsTheAgentsImageOfAJobThatRuns) {
  StartOperator("crowdsurf/worker:old");
  ASSERT_TRUE(client_->Create(jobs_, Job(1)).ok());
  ASSERT_TRUE(Eventually(
      "pinned", [&] { return JobStatus().value("agentImage", "") == "crowdsurf/worker:old"; }));
  KillOperator();
  StartOperator("crowdsurf/worker:new");
  Play("job-0-1", "Running", {});
  Play("job-0-1", "Failed", 3);
  ASSERT_TRUE(Eventually("its replacement", [&] { return Pods().contains("job-0-2"); }));
  const auto image = "/spec/initContainers/0/image"_json_pointer;
  EXPECT_EQ(Pods()["job-0-2"][image], "crowdsurf/worker:old");
}

// pod-lifecycle 5.11
TEST_F(OperatorTest, ALimitRangeThatThrottlesAgentsIsNamedInACondition) {
  const Json limits = {
      {"metadata", {{"name", "small"}}},
      {"spec", {{"limits", {{{"type", "Container"}, {"default", {{"cpu", "700m"}}}}}}}}};
  ASSERT_TRUE(client_->Create(core_ + "limitranges", limits).ok());
  StartOperator();
  ASSERT_TRUE(client_->Create(jobs_, Job(1)).ok());
  ASSERT_TRUE(Eventually("a pod", [&] { return Pods().size() == 1; }));
  ASSERT_TRUE(Eventually("it is named", [&] {
    return JobStatus().dump().find("holds agents to 700m CPUs") != std::string::npos;
  })) << Pods()["job-0-1"]["metadata"]["annotations"];
}

// pod-lifecycle 7.1, 7.2, 7.4
TEST_F(OperatorTest, ATemplateThatTheServerRefusesIsAConditionInTheServersWords) {
  StartOperator();
  Json job = Job(1);
  job["spec"]["template"]["spec"]["flavor"] = {{"a", "b"}};
  ASSERT_TRUE(client_->Create(jobs_, job).ok());
  ASSERT_TRUE(Eventually("InvalidTemplate",
                         [&] { return JobStatus().dump().find("flavor") != std::string::npos; }));
  EXPECT_NE(JobStatus().dump().find("InvalidTemplate"), std::string::npos) << JobStatus();
  EXPECT_TRUE(Pods().empty());
}

TEST_F(OperatorTest, BadManifestsAreRefusedWithThePathAndTheReason) {
  struct Case {
    const char* path;  // where the fault is put
    Json value;
    const char* named;  // what the refusal names
  };
  const Case cases[] = {
      {"/spec/replicas", -1, "spec.replicas"},
      {"/spec/replicas", "many", "spec.replicas"},
      {"/spec/averaging/groupSize", 1, "spec.averaging.groupSize"},
      {"/spec/averaging/groupSize", 65, "spec.averaging.groupSize"},
      {"/spec/averaging/strategy", "Mosh", "spec.averaging.strategy"},
      {"/spec/averaging/interval", {{"steps", 1}, {"seconds", 2}}, "interval"},
      {"/spec/target", Json::object(), "spec.target"},
      {"/spec/template/spec/restartPolicy", "Always", "restartPolicy"},
      // pod-lifecycle 8.2
      {"/spec/template/spec/containers/0/name", "crowdsurf-x", "reserved"},
      {"/spec/template/spec/containers/0/env",
       {{{"name", "CROWDSURF_DIR"}, {"value", "x"}}},
       "CROWDSURF_"},
      {"/spec/template/spec/containers", Json::array(), "containers"},
      {"/spec/capacity/type", "Cheap", "spec.capacity.type"},
      {"/spec/minReplicas", 5, "inReplicas"},
  };
  for (const Case& c : cases) {
    Json job = Job(2);
    job[Json::json_pointer(c.path)] = c.value;
    const Status refused = client_->Create(jobs_, job).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << c.path << " " << c.value << ": " << refused;
    EXPECT_NE(refused.message().find(c.named), absl::string_view::npos)
        << c.path << " " << c.value << ": " << refused;
  }
}

// pod-lifecycle 3.10: NotReady is not dead, and may be nothing but a control plane that does not
// hear: a Lease that is renewed meanwhile tells the two apart.
TEST_F(OperatorTest, ANotReadyNodeIsGivenUpOnlyWhenItsLeaseIsSilentToo) {
  constexpr int kTolerated = 3;  // seconds
  for (const char* node : {"heard-1", "silent-1"}) AddNode(node);
  SetReady("heard-1", "True");  // else all are silent, and nobody is given up
  SetReady("silent-1", "True");
  StartOperator();
  Json job = Job(1);
  job["spec"]["disruption"] = {{"toleratedUnreachableSeconds", kTolerated}};
  ASSERT_TRUE(client_->Create(jobs_, job).ok());
  ASSERT_TRUE(Eventually("a pod", [&] { return Pods().size() == 1; }));
  Bind("job-0-1", "silent-1");
  Play("job-0-1", "Running", std::nullopt);
  const std::string leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
  (void)client_->Delete(leases + "/silent-1");
  ASSERT_TRUE(client_->Create(leases, {{"metadata", {{"name", "silent-1"}}}}).ok());
  const auto renew = [&] {
    const auto renewed = client_->Patch(leases + "/silent-1", PatchType::kMerge,
                                        {{"spec", {{"renewTime", FormatInstant(WallNow())}}}});
    EXPECT_TRUE(renewed.ok()) << renewed.status();
  };
  renew();
  SetReady("silent-1", "Unknown");
  const auto begun = steady_clock::now();
  Eventually("renewed for three times as long", [&] {
    renew();
    return steady_clock::now() - begun > std::chrono::seconds(3 * kTolerated);
  });
  EXPECT_EQ(Names(), "job-0-1 ");
  Eventually("given up", [&] { return Pods().contains("job-0-2"); });
  (void)client_->Delete(leases + "/silent-1");
}

}  // namespace
}  // namespace crowdsurf::controller
