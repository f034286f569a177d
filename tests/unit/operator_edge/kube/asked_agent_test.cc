// Whose agent the operator asks, and what it keeps of an agent's word.
#include "operator/core/pods/pod_builder.h"
#include "tests/unit/operator_edge/living_cluster.h"

namespace crowdsurf::controller {
namespace {

class AskedAgentTest : public LivingCluster {
 protected:
  // Its trainer runs and it is Ready or not; on the address 10.0.0.<index + 1>.
  void PutPod(int index, bool ready) {
    const std::string name = "crowd-" + std::to_string(index) + "-1";
    Json pod = {
        {"metadata",
         {{"name", name},
          {"namespace", "team"},
          {"uid", "pod-" + std::to_string(index)},
          {"creationTimestamp", "2027-01-15T07:00:00Z"},
          {"labels",
           {{"crowdsurf.io/worker-index", std::to_string(index)},
            {"crowdsurf.io/job-uid", Uid()},
            {"crowdsurf.io/incarnation", "1"}}},
          {"ownerReferences",
           {{{"kind", "TrainingJob"}, {"name", "crowd"}, {"uid", Uid()}, {"controller", true}}}}}},
        {"spec",
         {{"nodeName", "node"},
          {"initContainers", {{{"name", "crowdsurf-agent"}, {"restartPolicy", "Always"}}}},
          {"containers",
           {{{"name", "trainer"}, {"env", {{{"name", "CROWDSURF_WORKER"}, {"value", name}}}}},
            {{"name", "mesh"}}}}}},
        {"status",
         {{"phase", "Running"},
          {"podIP", "10.0.0." + std::to_string(index + 1)},
          {"conditions",
           {{{"type", "Ready"},
             {"status", ready ? "True" : "False"},
             {"lastTransitionTime", "2027-01-15T07:00:01Z"}}}},
          {"initContainerStatuses",
           {{{"name", "crowdsurf-agent"}, {"state", {{"running", Json::object()}}}}}},
          {"containerStatuses",
           {{{"name", "trainer"},
             {"state", {{"running", {{"startedAt", "2027-01-15T07:00:02Z"}}}}}},
            {{"name", "mesh"}, {"state", {{"running", Json::object()}}}}}}}}};
    api_.Put("pods", pod);
    EXPECT_TRUE(Until([&] {
      const auto snapshot = cluster_->Observe(kJob);
      return snapshot.ok() &&
             std::any_of(snapshot->pods.begin(), snapshot->pods.end(), [&](const PodFacts& facts) {
               return facts.name == name && facts.ready_since.has_value() == ready;
             });
    }));
  }
  std::string Uid() { return TextAt(api_.Find("trainingjobs", kJob), "metadata.uid"); }
  std::string Asked() {
    const auto agent = cluster_->AgentOf(kJob);
    return agent ? agent->http : "";
  }
};

TEST_F(AskedAgentTest, IsOneThatTrainsOrElseOneThatMaySayWhyItDoesNot) {
  Start();
  EXPECT_EQ(Asked(), "");
  PutPod(0, /*ready=*/false);
  EXPECT_EQ(Asked(), "10.0.0.1:7948") << "nobody trains, and it may know why";
  PutPod(1, /*ready=*/true);
  EXPECT_EQ(Asked(), "10.0.0.2:7948");
}

TEST_F(AskedAgentTest, IsFirstOfAllOneWhoseTrainerEndedBesideAnotherContainer) {
  Start();
  PutPod(0, true);
  PutPod(1, true);
  api_.Change(
      "pods", "team/crowd-1-1",
      {{"status",
        {{"containerStatuses",
          {{{"name", "trainer"},
            {"state", {{"terminated", {{"exitCode", 0}, {"finishedAt", "2027-01-15T07:59:00Z"}}}}}},
           {{"name", "mesh"}, {"state", {{"running", Json::object()}}}}}}}}});
  EXPECT_TRUE(Until([&] { return Asked() == "10.0.0.2:7948"; })) << Asked();
}

TEST_F(AskedAgentTest, WhatItWaitsForIsAFactOfItsPodAndOfNoOther) {
  Start();
  PutPod(0, false);
  PutPod(1, false);
  const auto wait = [&](size_t pod) { return cluster_->Observe(kJob)->pods.at(pod).wait; };
  cluster_->SetWait(kJob, Uid(), "crowd-1-1", "trainer");
  EXPECT_EQ(wait(0), "");
  EXPECT_EQ(wait(1), "trainer");
  cluster_->SetWait(kJob, "another-uid", "crowd-1-1", "signer");
  EXPECT_EQ(wait(1), "trainer") << "a job of this name that was deleted";
  cluster_->SetWait(kJob, Uid(), "crowd-1-1", "");
  EXPECT_EQ(wait(1), "");
}

// Kubelet writes how the agent ended and deletes the pod within milliseconds.
TEST_F(AskedAgentTest, TheLastWordsOutliveTheirPod) {
  Start();
  PutPod(0, true);
  api_.Change("pods", "team/crowd-0-1",
              {{"status",
                {{"initContainerStatuses",
                  {{{"name", "crowdsurf-agent"},
                    {"state",
                     {{"terminated",
                       {{"exitCode", 0},
                        {"message", R"({"reason": "target met", "samples": 900})"}}}}}}}}}}});
  api_.Remove("pods", "team/crowd-0-1");
  EXPECT_TRUE(Until([&] { return cluster_->Observe(kJob)->pods.empty(); }));
  const auto snapshot = cluster_->Observe(kJob);
  EXPECT_TRUE(snapshot->progress.target_met);
  EXPECT_EQ(snapshot->progress.samples, 900u);
}

}  // namespace
}  // namespace crowdsurf::controller
