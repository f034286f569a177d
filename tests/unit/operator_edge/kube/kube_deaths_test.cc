// Deaths that peers report, outages of the API server, and kubelets that are heard again.
#include <gmock/gmock.h>

#include "operator/core/decide/classify.h"
#include "operator/core/job/reasons.h"
#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(KubeClusterTest, WhomTwoReportAndNobodyAnswersIsDeadInTheSnapshot) {
  Report(1, 0);
  Report(2, 0);
  EXPECT_THAT(Touched(), testing::Contains("team/crowd"));
  EXPECT_FALSE(Observe().pods.at(0).reported_dead);
  ASSERT_THAT(probes_, SizeIs(1));
  EXPECT_EQ(probes_[0].http, "10.0.0.10:7948");
  EXPECT_TRUE(cluster_->PostProbe("uid-0", ProbeResult::kSilent));
  EXPECT_THAT(Touched(), testing::Contains("team/crowd"));
  const JobSnapshot snapshot = Observe();
  for (const PodFacts& pod : snapshot.pods) {
    EXPECT_EQ(pod.reported_dead, pod.name == "crowd-0-1") << pod.name;
    EXPECT_FALSE(pod.lease_stale) << "there is no Lease to read";
  }
  EXPECT_THAT(snapshot.deleted_on_word, IsEmpty());
  (void)cluster_->Delete({"crowd-0-1", "uid-0", {}, reason::kPeersReportedDead});
  EXPECT_THAT(snapshot.suspect_nodes, testing::ElementsAre("node-0"));
  EXPECT_THAT(Observe().deleted_on_word, SizeIs(1));
  now_ = now_ + Seconds(119);
  EXPECT_THAT(Observe().suspect_nodes, testing::ElementsAre("node-0"))
      << "until its silence is known to all";
  now_ = now_ + Seconds(1);
  EXPECT_THAT(Observe().deleted_on_word, IsEmpty());
  EXPECT_THAT(Observe().suspect_nodes, IsEmpty());
}

TEST_F(KubeClusterTest, AMachineWhoseKubeletIsHeardAgainIsNoLongerSuspect) {
  ShowLease("2026-01-01T00:00:00Z");
  Report(1, 0);
  Report(2, 0);
  Touched();
  (void)Observe();
  Answered();
  (void)cluster_->Delete({"crowd-0-1", "uid-0", {}, reason::kPeersReportedDead});
  EXPECT_THAT(Observe().suspect_nodes, testing::ElementsAre("node-0"));
  Answered();
  now_ = now_ + Seconds(31);  // nobody speaks of it any more
  Touched();
  EXPECT_THAT(Observe().suspect_nodes, testing::ElementsAre("node-0"));
  ShowLease("2026-01-01T00:00:30Z");
  now_ = now_ + Seconds(2);
  Touched();
  (void)Observe();
  Answered();
  const JobSnapshot snapshot = Observe();
  EXPECT_THAT(snapshot.suspect_nodes, IsEmpty());
  EXPECT_THAT(snapshot.deleted_on_word, SizeIs(1)) << "it was deleted all the same";
}

TEST_F(KubeClusterTest, AfterAnOutageOfTheServerItsKubeletsAreHeardFirst) {
  const auto pass = [&](double seconds) { steady_ += Seconds(seconds).nanoseconds(); };
  const auto say = [&] {
    Report(1, 0);
    Report(2, 0);
    EXPECT_TRUE(cluster_->PostProbe("uid-0", ProbeResult::kSilent));
    Touched();
  };
  say();
  EXPECT_TRUE(Observe().pods.at(0).reported_dead);
  api_.Put("/api/v1/nodes", 503, {{"kind", "Status"}, {"code", 503}});
  EXPECT_FALSE(client_->Get("/api/v1/nodes").ok());
  pass(5);
  EXPECT_FALSE(Observe().pods.at(0).reported_dead);
  api_.Put("/api/v1/nodes", 200, List(json::array()));
  EXPECT_TRUE(client_->Get("/api/v1/nodes").ok());
  pass(59);
  EXPECT_FALSE(Observe().pods.at(0).reported_dead) << "kubelets come back";
  pass(1);
  EXPECT_TRUE(Observe().pods.at(0).reported_dead) << "whose kubelet did not is lost";
}

// pod-lifecycle 3.10: two kubelets were back 3 s and 30 s after the API server.
TEST_F(KubeClusterTest, AfterAnOutageOfTheServerNoNodeIsGivenUpBeforeAllHaveHadTheirTime) {
  const auto pass = [&](double seconds) {
    steady_ += Seconds(seconds).nanoseconds();
    now_ = now_ + Seconds(seconds);
  };
  NodeFacts late;
  late.not_ready_since = now_;
  const Duration tolerated = Observe().job.spec.disruption.tolerated_unreachable;
  const auto given_up = [&] {
    return GivenUpAt(late, Observe().nodes_heard_since, tolerated) - now_;
  };
  EXPECT_EQ(given_up(), tolerated);
  api_.Put("/api/v1/nodes", 503, {{"kind", "Status"}, {"code", 503}});
  EXPECT_FALSE(client_->Get("/api/v1/nodes").ok());
  pass(20);
  EXPECT_EQ(given_up(), Seconds(60));
  api_.Put("/api/v1/nodes", 200, List(json::array()));
  EXPECT_TRUE(client_->Get("/api/v1/nodes").ok());
  pass(59);
  EXPECT_EQ(given_up(), Seconds(1));
  pass(1);
  EXPECT_LE(given_up(), Duration());
}

TEST_F(KubeClusterTest, ALeaseThatIsNotRenewedWhileItIsWatchedIsEvidence) {
  ShowLease("2026-01-01T00:00:00Z");  // long ago by our clock: the kubelet's may be wrong
  const auto watch = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now_ = now_ + Seconds(1);
      Report(1, 0);
      Report(2, 0);
      Touched();
      (void)Observe();
      Answered();
      EXPECT_TRUE(cluster_->PostProbe("uid-0", ProbeResult::kBlind));
      Touched();
    }
    return Observe().pods.at(0);
  };
  EXPECT_FALSE(watch(14).reported_dead);
  ShowLease("2026-01-01T00:00:10Z");
  EXPECT_FALSE(watch(14).reported_dead);
  const PodFacts dead = watch(6);
  EXPECT_TRUE(dead.lease_stale);
  EXPECT_TRUE(dead.reported_dead);
  EXPECT_LE(api_.Asked(kLeases), 20) << "every other second";
}

// The node is not Ready, and its kubelet renews the Lease: the control plane does not hear it. What
// an earlier read showed is too old to give anybody up.
TEST_F(KubeClusterTest, NobodyIsGivenUpWhileTheLeaseOfItsNodeIsBeingRead) {
  api_.Put("/api/v1/nodes", 200,
           List(json::array({{{"metadata", {{"name", "node-0"}}},
                              {"status",
                               {{"conditions",
                                 {{{"type", "Ready"},
                                   {"status", "Unknown"},
                                   {"lastTransitionTime", "2027-01-15T07:59:00Z"}}}}}}}})));
  ShowLease("2026-01-01T00:00:00Z");
  Restart();
  (void)Observe();
  Answered();
  now_ = now_ + Seconds(60);
  ShowLease("2026-01-01T00:00:59Z");
  EXPECT_EQ(Observe().nodes["node-0"].renewed_at, now_) << "it is being read";
  EXPECT_THAT(Answered(), testing::Contains("team/crowd"));
  EXPECT_EQ(Observe().nodes["node-0"].renewed_at, now_) << "it was renewed";
}

TEST_F(KubeClusterTest, LeasesOfManyNodesAreReadSideBySide) {  // other jobs wait for the turn
  for (int subject = 0; subject < 4; ++subject) Report((subject + 1) % 4, subject);
  Touched();
  api_.GatherLeases(4);
  (void)Observe();
  Answered();
  EXPECT_EQ(api_.MaxLeasesAtOnce(), 4);
  (void)Observe();
  Answered();
  EXPECT_EQ(api_.Asked(kLeases), 1) << "every other second";
}

TEST_F(KubeClusterTest, OfMoreNodesThanATurnReadsThoseReadLongestAgoComeFirst) {
  constexpr size_t kNodes = kMaxLeases + 30;
  json pods = json::array(), nodes = json::array();
  for (size_t i = 0; i < kNodes; ++i) {
    pods.push_back(Pod(static_cast<int>(i)));
    nodes.push_back({{"metadata", {{"name", "node-" + std::to_string(i)}}},
                     {"status",
                      {{"conditions",
                        {{{"type", "Ready"},
                          {"status", "Unknown"},
                          {"lastTransitionTime", "2027-01-15T07:59:00Z"}}}}}}});
  }
  api_.Put("/api/v1/pods", 200, List(pods));
  api_.Put("/api/v1/nodes", 200, List(nodes));
  Restart();
  const auto asked = [&] {
    std::map<int, size_t> nodes_of;  // by how often their Leases were read
    for (size_t i = 0; i < kNodes; ++i) {
      const std::string lease = std::string(kLeases).substr(0, std::string(kLeases).size() - 1);
      ++nodes_of[api_.Asked(lease + std::to_string(i))];
    }
    return nodes_of;
  };
  (void)Observe();
  Answered();
  EXPECT_EQ(asked(), (std::map<int, size_t>{{0, 30}, {1, kMaxLeases}}));
  now_ = now_ + Seconds(3);
  (void)Observe();
  Answered();
  EXPECT_EQ(asked(), (std::map<int, size_t>{{1, 60}, {2, kMaxLeases - 30}}));
}

TEST_F(KubeClusterTest, AnOpenCaseIsLookedAtAgainAndAForgottenOneIsNot) {
  Report(1, 0);
  EXPECT_THAT(Touched(), testing::Contains("team/crowd"));
  now_ = now_ + Seconds(3);
  EXPECT_THAT(Touched(), testing::Contains("team/crowd")) << "time passes for a Lease";
  now_ = now_ + Seconds(31);
  Touched();
  (void)Observe();
  now_ = now_ + Seconds(3);
  EXPECT_THAT(Touched(), IsEmpty());
}

}  // namespace
}  // namespace crowdsurf::controller
