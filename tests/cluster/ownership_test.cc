// What is somebody else's stays theirs, and what was accepted stays, against a real kube-apiserver.
#include <algorithm>
#include <set>

#include "tests/cluster/operator_fixture.h"

namespace crowdsurf::controller {
namespace {

class OwnershipClusterTest : public OperatorTest {
 protected:
  Json Service() { return *client_->Get(core_ + "services/job-peers"); }
  std::string DegradedReason() { return ConditionOf("Degraded").value("reason", ""); }
  Json ConditionOf(const std::string& type) {
    const Json status = JobStatus();
    if (!status.contains("conditions")) return Json::object();
    for (const Json& condition : status["conditions"]) {
      if (condition["type"] == type) return condition;
    }
    return Json::object();
  }
  Status Patch(const Json& patch) {
    return client_->Patch(jobs_ + "/job", PatchType::kMerge, patch).status();
  }
  // A Service of the job's name is there before the job.
  void TheirServiceIsNamedAndKept(Json service) {
    service["metadata"]["name"] = "job-peers";
    ASSERT_TRUE(client_->Create(core_ + "services", service).ok());
    const Json before = Service();
    StartOperator();
    ASSERT_TRUE(client_->Create(jobs_, Job(2)).ok());
    ASSERT_TRUE(Eventually("NameTaken", [&] { return DegradedReason() == "NameTaken"; }));
    const std::string message = ConditionOf("Degraded").value("message", "");
    EXPECT_NE(message.find("Service/job-peers"), std::string::npos) << message;
    EXPECT_NE(message.find("nobody's"), std::string::npos) << message;
    EXPECT_EQ(JobStatus().value("state", ""), "NameTaken");
    EXPECT_TRUE(Pods().empty());
    EXPECT_EQ(Service(), before) << "to the last field";
    ASSERT_TRUE(client_->Delete(core_ + "services/job-peers").ok());
    ASSERT_TRUE(Eventually("starts by itself", [&] { return Pods().size() == 2; }));
    EXPECT_EQ(Names(), "job-0-1 job-1-1 ") << "no number is used up";
    EXPECT_EQ(Service()["spec"]["clusterIP"], "None");
  }
};

TEST_F(OwnershipClusterTest, AnothersClusterIpServiceIsNamedAndKept) {
  TheirServiceIsNamedAndKept({{"spec", {{"ports", {{{"port", 80}}}}}}});
}

TEST_F(OwnershipClusterTest, AnothersHeadlessServiceIsNamedAndKept) {
  TheirServiceIsNamedAndKept(
      {{"spec", {{"clusterIP", "None"}, {"selector", {{"app", "theirs"}}}}}});
}

TEST_F(OwnershipClusterTest, LeftoversOfADeletedJobOfThisNameAreWaitedFor) {
  ASSERT_TRUE(
      client_
          ->Create(core_ + "services", {{"metadata",
                                         {{"name", "job-peers"},
                                          {"finalizers", {"example.com/slow"}},
                                          {"ownerReferences",
                                           {{{"apiVersion", "crowdsurf.io/v1alpha1"},
                                             {"kind", "TrainingJob"},
                                             {"name", "job"},
                                             {"uid", "00000000-0000-0000-0000-000000000001"},
                                             {"controller", true}}}}}},
                                        {"spec", {{"clusterIP", "None"}}}})
          .ok());
  StartOperator();
  ASSERT_TRUE(client_->Create(jobs_, Job(1)).ok());
  ASSERT_TRUE(Eventually("Leftovers", [&] { return DegradedReason() == "Leftovers"; }));
  EXPECT_TRUE(Pods().empty());
  (void)client_->Delete(core_ + "services/job-peers");  // or the garbage collector was first
  ASSERT_TRUE(client_
                  ->Patch(core_ + "services/job-peers", PatchType::kMerge,
                          {{"metadata", {{"finalizers", nullptr}}}})
                  .ok());
  EXPECT_TRUE(Eventually("starts", [&] { return Pods().contains("job-0-1"); }));
}

// The CRD takes it, and the operator does not: what an upgrade with a stricter rule looks like.
Json Refused() { return {{"discovery", {{"bootstrapPeers", {"no port"}}}}}; }

TEST_F(OwnershipClusterTest, AnInvalidEditStopsNoHealingAlsoAfterARestart) {
  StartOperator();
  ASSERT_TRUE(client_->Create(jobs_, Job(1)).ok());
  ASSERT_TRUE(Eventually("a pod", [&] { return Pods().contains("job-0-1"); }));
  ASSERT_TRUE(Eventually("kept", [&] { return JobStatus().value("acceptedGeneration", 0) == 1; }));
  ASSERT_TRUE(Patch({{"spec", Refused()}}).ok());
  ASSERT_TRUE(Eventually(
      "InvalidSpec", [&] { return ConditionOf("Accepted").value("reason", "") == "InvalidSpec"; }));
  const std::string message = ConditionOf("Accepted").value("message", "");
  EXPECT_NE(message.find("spec.discovery.bootstrapPeers[0]"), std::string::npos) << message;
  EXPECT_NE(message.find("generation 1"), std::string::npos) << message;
  EXPECT_EQ(JobStatus()["observedGeneration"], 2);
  KillOperator();
  ASSERT_TRUE(client_->Delete(core_ + "pods/job-0-1", {{"gracePeriodSeconds", 0}}).ok());
  StartOperator();
  ASSERT_TRUE(Eventually("its replacement", [&] { return Pods().contains("job-0-2"); }));
  Json suspend = Refused();
  suspend["suspend"] = true;
  ASSERT_TRUE(Patch({{"spec", suspend}}).ok());
  ASSERT_TRUE(Eventually("suspend acts", [&] {
    const auto pods = Pods();
    return std::all_of(pods.begin(), pods.end(), [](const auto& pod) {
      return pod.second["metadata"].contains("deletionTimestamp");
    });
  }));
}

TEST_F(OwnershipClusterTest, TheTwoNewestAcceptedSpecsAreKept) {
  StartOperator();
  ASSERT_TRUE(client_->Create(jobs_, Job(1)).ok());
  for (int replicas = 2; replicas <= 4; ++replicas) {
    ASSERT_TRUE(Patch({{"spec", {{"replicas", replicas}}}}).ok());
    ASSERT_TRUE(
        Eventually("kept", [&] { return JobStatus().value("acceptedGeneration", 0) == replicas; }));
  }
  const auto revisions =
      client_->List("/apis/apps/v1/namespaces/" + space_ + "/controllerrevisions");
  ASSERT_TRUE(revisions.ok());
  std::set<int> kept;
  for (const Json& revision : revisions->items) kept.insert(revision["revision"].get<int>());
  EXPECT_EQ(kept, (std::set<int>{3, 4}));
}

// What the user's own container needs there: docs/kubernetes.md.
TEST_F(OwnershipClusterTest, APodWhoseTrainerIsRestrictedPassesPodSecurity) {
  ASSERT_TRUE(client_
                  ->Patch("/api/v1/namespaces/" + space_, PatchType::kMerge,
                          {{"metadata",
                            {{"labels", {{"pod-security.kubernetes.io/enforce", "restricted"}}}}}})
                  .ok());
  StartOperator();
  Json job = Job(1);
  job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {
      {"allowPrivilegeEscalation", false},
      {"runAsNonRoot", true},
      {"capabilities", {{"drop", {"ALL"}}}},
      {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  ASSERT_TRUE(client_->Create(jobs_, job).ok());
  EXPECT_TRUE(Eventually("a pod", [&] { return Pods().contains("job-0-1"); }));
}

}  // namespace
}  // namespace crowdsurf::controller
