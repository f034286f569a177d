// What the cluster port makes of an API server's answers, and of what agents tell.
#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

TEST_F(KubeClusterTest, AGuardThatFailsOnceIsTriedAgainAWhileLaterAndThenNoMore) {
  api_.Put(kBudgets, 503, {{"kind", "Status"}, {"code", 503}});
  Observe();
  const int failed = api_.Asked(kBudgets);
  EXPECT_GE(failed, 1);
  now_ = now_ + Seconds(9);
  Observe();
  EXPECT_EQ(api_.Asked(kBudgets), failed) << "not in every turn of the job";
  api_.Put(kBudgets, 200, Owned());
  now_ = now_ + Seconds(1);
  Observe();
  EXPECT_EQ(api_.Asked(std::string("PATCH ") + kBudgets), 1) << "it lacked its spec";
  const int asked = api_.Asked(kBudgets);
  now_ = now_ + Seconds(1000);
  Observe();
  EXPECT_EQ(api_.Asked(kBudgets), asked) << "it is as the spec asks";
}

TEST_F(KubeClusterTest, WhatDeletedJobsLeftIsSweptAfterEachListUntilThatWorks) {
  ASSERT_EQ(swept_.size(), 1u);
  EXPECT_EQ(swept_[0], std::set<std::string>{"job-uid"});
  Touched();
  EXPECT_EQ(swept_.size(), 1u) << "not in every turn";
  now_ = now_ + Seconds(10);
  sweep_answer_ = absl::OkStatus();
  Touched();
  EXPECT_EQ(swept_.size(), 2u);
  now_ = now_ + Seconds(1000);
  Touched();
  EXPECT_EQ(swept_.size(), 2u);
}

TEST_F(KubeClusterTest, ANameThatIsTakenIsOursOrTheNextOneOrRefused) {  // pod-lifecycle 3.2
  const std::string space = "/api/v1/namespaces/team/";
  for (const char* made : {"configmaps/crowd-crowdsurf-ca", "services/crowd-peers"}) {
    api_.Put(space + made, 200, Owned());
  }
  api_.Put(space + "pods", 409,
           {{"kind", "Status"}, {"code", 409}, {"reason", "AlreadyExists"}, {"message", "taken"}});
  CreatePod create;
  create.name = "crowd-0-2";
  json pod = Pod(0);
  pod["metadata"]["name"] = create.name;
  const auto answer = [&] {
    api_.Put(space + "pods/" + create.name, 200, pod);
    return cluster_->Create(Observe().job, create);
  };
  EXPECT_TRUE(answer().ok()) << "from before a crash";
  pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_TRUE(answer().ok()) << "the next decision sees that it goes, and takes the next number";
  pod["metadata"]["ownerReferences"][0]["uid"] = "another";
  EXPECT_TRUE(absl::IsAlreadyExists(answer()));
}

// A list may be read before a create, and be taken long after it: the host had other work.
TEST_F(KubeClusterTest, AListFromBeforeACreateDoesNotForgetItsPodHoweverLateItComes) {
  const std::string space = "/api/v1/namespaces/team/";
  for (const char* made : {"configmaps/crowd-crowdsurf-ca", "services/crowd-peers"}) {
    api_.Put(space + made, 200, Owned());
  }
  json pod = Pod(4);
  pod["metadata"]["resourceVersion"] = "15";
  api_.Put("POST " + space + "pods", 201, pod);
  CreatePod create;
  create.name = "crowd-4-1";
  ASSERT_TRUE(cluster_->Create(Observe().job, create).ok());
  ASSERT_EQ(Observe().pods.size(), 5u);
  now_ = now_ + Seconds(3600);
  Relist("14", "Succeeded");
  EXPECT_EQ(Observe().pods.size(), 5u) << "it would be made a second time";
  Relist("16", "Failed");
  EXPECT_EQ(Observe().pods.size(), 4u) << "it is gone";
}

TEST_F(KubeClusterTest, ProgressAloneIsNewsOnceAMinute) {  // pod-lifecycle 8.5
  const auto told = [&](uint64_t samples, bool target_met = false) {
    cluster_->SetProgress("team/crowd", "job-uid",
                          Progress{samples, 1, std::nullopt, 1, target_met});
    return Observe().progress.samples;
  };
  EXPECT_EQ(told(10), 10u);
  now_ = now_ + Seconds(59);
  EXPECT_EQ(told(20), 10u);
  now_ = now_ + Seconds(1);
  EXPECT_EQ(told(30), 30u);
  EXPECT_EQ(told(1000, true), 1000u) << "the end of a job is no mere progress";
}

// Its pods may run for half a minute after a job was deleted and made again under its name.
TEST_F(KubeClusterTest, TheProgressOfADeletedJobOfThisNameIsNotThisOnes) {
  cluster_->SetProgress("team/crowd", "older-uid", Progress{1000, 7, std::nullopt, 9, true});
  cluster_->SetProgress("team/gone", "gone-uid", Progress{1000, 7, std::nullopt, 9, true});
  EXPECT_EQ(Observe().progress.samples, 0u);
  EXPECT_FALSE(Observe().progress.target_met);
  const std::string space = "/api/v1/namespaces/team/";
  for (const char* made : {"configmaps/crowd-crowdsurf-ca", "services/crowd-peers"}) {
    api_.Put(space + made, 200, Owned());
  }
  json older = Pod(9);  // first of all by its name
  older["metadata"]["name"] = "crowd-0-0";
  older["metadata"]["resourceVersion"] = "11";
  older["metadata"]["ownerReferences"][0]["uid"] = "older-uid";
  api_.Put(space + "pods", 201, older);
  CreatePod create;
  create.name = "crowd-0-0";
  EXPECT_TRUE(cluster_->Create(Observe().job, create).ok());
  EXPECT_EQ(cluster_->AgentOf("team/crowd"),
            (KubeCluster::AskedAgent{"job-uid", "10.0.0.10:7948"}));
  EXPECT_EQ(cluster_->AgentOf("team/gone"), std::nullopt);
}

TEST_F(KubeClusterTest, TheRateOfAProgressIsTheMedianOfThoseToldSinceTheOneBefore) {
  const auto told = [&](double rate) {
    cluster_->SetProgress("team/crowd", "job-uid", Progress{10, 1, std::nullopt, 1, false, rate});
    return Observe().progress.samples_per_second;
  };
  EXPECT_EQ(told(0), 0) << "a worker that does not train yet has none";
  EXPECT_EQ(told(5), 5) << "the first one is news at once";
  for (const double rate : {9.0, 0.0, 1.0, 7.0}) EXPECT_EQ(told(rate), 5);
  now_ = now_ + Seconds(60);
  EXPECT_EQ(told(8), 8) << "of 9, 1, 7 and 8 the upper middle";
}

}  // namespace
}  // namespace crowdsurf::controller
