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

TEST_F(KubeClusterTest, WhatDeletedJobsLeftIsSweptAfterEachList) {
  ASSERT_EQ(swept_.size(), 1u);
  EXPECT_EQ(swept_[0], std::set<std::string>{"job-uid"});
  now_ = now_ + Seconds(1000);
  Touched();
  EXPECT_EQ(swept_.size(), 1u) << "not in every turn";
  Relist("14", "Succeeded");
  EXPECT_TRUE(EventuallyHolds([&] {
    Touched();
    return swept_.size() == 2u;
  }));
}

TEST_F(KubeClusterTest, ANameThatIsTakenIsOursOrTheNextOneOrRefused) {  // pod-lifecycle 3.2
  PutStartObjects();
  api_.Put(kPodsPath, 409,
           {{"kind", "Status"}, {"code", 409}, {"reason", "AlreadyExists"}, {"message", "taken"}});
  CreatePod create;
  create.name = "crowd-0-2";
  json pod = Pod(0);
  pod["metadata"]["name"] = create.name;
  pod["metadata"]["uid"] = "uid-of-it";
  pod["metadata"]["resourceVersion"] = "15";
  const auto answer = [&] {
    api_.Put(kPodsPath + "/" + create.name, 200, pod);
    return cluster_->Create(Observe().job, create);
  };
  EXPECT_TRUE(answer().ok()) << "from before a crash";
  ASSERT_EQ(Observe().pods.size(), 5u) << "seen before its watch tells";
  EXPECT_EQ(Observe().pods.at(1).name, create.name);
  EXPECT_FALSE(Observe().pods.at(1).deleted);
  pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_TRUE(answer().ok()) << "the next decision sees that it goes, and takes the next number";
  EXPECT_TRUE(Observe().pods.at(1).deleted);
  pod["metadata"]["ownerReferences"][0]["uid"] = "another";
  EXPECT_TRUE(absl::IsAlreadyExists(answer()));
}

// A list may be read before a create, and be taken long after it: the host had other work.
TEST_F(KubeClusterTest, AListFromBeforeACreateDoesNotForgetItsPodHoweverLateItComes) {
  PutStartObjects();
  json pod = Pod(4);
  pod["metadata"]["resourceVersion"] = "15";
  api_.Put("POST " + kPodsPath, 201, pod);
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

// Such a node is not one without a mark: the notice would be withdrawn and the replacement retired
// before the worker is counted.
TEST_F(KubeClusterTest, ANodeThatItsWatchNoLongerShowsIsGoneAtOnce) {
  const auto show = [&](bool first) {
    json nodes = json::array();
    for (int i = first ? 0 : 1; i < 4; ++i) {
      nodes.push_back({{"metadata", {{"name", "node-" + std::to_string(i)}}}});
    }
    if (first) {
      nodes[0]["spec"]["taints"] = {
          {{"key", "cloud.google.com/impending-node-termination"}, {"effect", "NoSchedule"}}};
    }
    api_.Put("/api/v1/nodes", 200, List(nodes));
  };
  show(true);
  Restart();
  ASSERT_TRUE(Observe().nodes.at("node-0").mark.has_value());
  show(false);
  api_.ExpireWatches();
  JobSnapshot next;
  EXPECT_TRUE(EventuallyHolds([&] {
    cluster_->Await(std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
    next = Observe();
    return !next.nodes.contains("node-0") || !next.nodes["node-0"].mark;
  }));
  EXPECT_FALSE(next.nodes.contains("node-0"));
  EXPECT_EQ(next.pods.at(0).node, "node-0");
}

// decisions/operator/015
class LateWorkerTest : public KubeClusterTest {
 protected:
  static constexpr char kEvents[] = "GET /api/v1/namespaces/team/events";
  static constexpr char kService[] = "/api/v1/namespaces/team/services/crowd-peers";
  // One worker, created 14 s ago, of which nothing is known but its node.
  void StartLate(const json& conditions = json::array()) {
    json late = Pod(0);
    late["metadata"]["creationTimestamp"] = "2027-01-15T07:59:46Z";
    late["status"] = {{"phase", "Pending"}, {"conditions", conditions}};
    api_.Put("/api/v1/pods", 200, List(json::array({late})));
    Restart();
  }
  std::string Waiting() { return Observe().pods.at(0).waiting_message; }
  // Its events were asked for so often, and what they say is known.
  void ExpectLooks(int looks) {
    EXPECT_TRUE(EventuallyHolds([&] { return api_.Asked(kEvents) == looks; }))
        << api_.Asked(kEvents);
  }
  bool Says(const std::string& message) {
    return EventuallyHolds([&] {
      cluster_->Await(std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
      return Waiting() == message;
    });
  }
};

TEST_F(LateWorkerTest, ItsEventsAreReadAfterFifteenSecondsThenSeldom) {
  const auto event = [](int count, const char* why, const char* message) {
    return json{{"count", count}, {"reason", why}, {"message", message}};
  };
  api_.Put(kEvents, 200,
           List(json::array({event(3, "FailedMount", "no volume"), event(2, "FailedMount", "once"),
                             event(9, "Pulling", "an image")})));
  StartLate();
  EXPECT_EQ(Waiting(), "");
  EXPECT_EQ(api_.Asked(kEvents), 0) << "it may still start";
  now_ = now_ + Seconds(1);
  EXPECT_EQ(Waiting(), "") << "nobody waits for an answer";
  EXPECT_TRUE(Says("no volume"));
  EXPECT_EQ(Observe().pods.at(0).waiting_reason, reason::kCannotStart);
  ExpectLooks(1);
  int looks = 1;
  for (const double pause : {15.0, 60.0, 300.0, 300.0}) {
    now_ = now_ + Seconds(pause) - Milliseconds(1);
    EXPECT_EQ(Waiting(), "no volume");
    now_ = now_ + Milliseconds(1);
    EXPECT_EQ(Waiting(), "no volume");
    ExpectLooks(++looks);
  }
  api_.Put(kEvents, 200, List(json::array()));
  now_ = now_ + Seconds(300);
  (void)Waiting();
  EXPECT_TRUE(Says("")) << "it has passed";
}

// No event speaks of an image that is pulled, and a pull may take minutes.
TEST_F(LateWorkerTest, OneWhoseSandboxIsThereIsNotAskedAbout) {
  StartLate({{{"type", "PodReadyToStartContainers"}, {"status", "True"}}});
  now_ = now_ + Seconds(1000);
  EXPECT_EQ(Waiting(), "");
  EXPECT_EQ(api_.Asked(kEvents), 0);
}

// The objects beside it may have been deleted, as by a clean-up of the namespace.
TEST_F(LateWorkerTest, WhatStandsBesideItIsLookedAtAgain) {
  StartLate();
  PutStartObjects();
  CreatePod create;
  create.name = "crowd-0-2";
  (void)cluster_->Create(Observe().job, create);
  api_.Put(kService, 404, {{"kind", "Status"}, {"code", 404}});
  const std::string made = "POST /api/v1/namespaces/team/services";
  api_.Put(made, 201, Owned());
  (void)Observe();
  EXPECT_EQ(api_.Asked(made), 0) << "nobody misses it";
  now_ = now_ + Seconds(1);
  (void)Observe();  // late: it is doubted
  (void)Observe();
  EXPECT_EQ(api_.Asked(made), 1);
  (void)Observe();
  EXPECT_EQ(api_.Asked(made), 1) << "not in every turn";
}

TEST_F(KubeClusterTest, AfterAGapOfTheWatchesTheNextCreateLooksAtWhatStandsBesideIt) {
  constexpr char kService[] = "/api/v1/namespaces/team/services/crowd-peers";
  PutStartObjects();
  json pod = Pod(4);
  pod["metadata"]["resourceVersion"] = "15";
  api_.Put("POST " + kPodsPath, 201, pod);
  CreatePod create;
  create.name = "crowd-4-1";
  const auto looks = [&] {
    const int before = api_.Asked(std::string("GET ") + kService);
    EXPECT_TRUE(cluster_->Create(Observe().job, create).ok());
    return api_.Asked(std::string("GET ") + kService) - before;
  };
  EXPECT_EQ(looks(), 1);
  EXPECT_EQ(looks(), 0);
  const size_t swept = swept_.size();
  Relist("16", "Succeeded");
  ASSERT_TRUE(EventuallyHolds([&] {  // the jobs' list is taken, too
    Touched();
    return swept_.size() > swept;
  }));
  EXPECT_EQ(looks(), 1);
  now_ = now_ + Seconds(299);
  EXPECT_EQ(looks(), 0);
  now_ = now_ + Seconds(1);
  EXPECT_EQ(looks(), 1) << "in a job that makes workers, every five minutes";
  api_.Put(kService, 503, {{"kind", "Status"}, {"code", 503}});
  now_ = now_ + Seconds(300);
  EXPECT_EQ(looks(), 1) << "nobody says that it is gone: the create is made";
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
  PutStartObjects();
  json older = Pod(9);  // first of all by its name
  older["metadata"]["name"] = "crowd-0-0";
  older["metadata"]["resourceVersion"] = "11";
  older["metadata"]["ownerReferences"][0]["uid"] = "older-uid";
  api_.Put(kPodsPath, 201, older);
  CreatePod create;
  create.name = "crowd-0-0";
  EXPECT_TRUE(cluster_->Create(Observe().job, create).ok());
  EXPECT_EQ(cluster_->AgentOf("team/crowd"),
            (KubeCluster::AskedAgent{"job-uid", "crowd-0-1", "10.0.0.10:7948"}));
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
