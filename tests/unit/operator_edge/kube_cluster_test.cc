// KubeCluster against an API server that fails when told to and whose clock the test turns: what a
// real one (tests/cluster) cannot be made to do.
#include "operator/edge/kube_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "operator/core/classify.h"
#include "operator/core/reasons.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/operator_edge/plain_endpoint.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::chrono::seconds kPatience{30};  // a test fails by it, and never waits for it
constexpr char kBudgets[] = "/apis/policy/v1/namespaces/team/poddisruptionbudgets/crowd-workers";
constexpr char kLeases[] = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0";

// Lists what it was given, keeps watches open and silent, and answers everything else from a table.
class FakeApiServer {
 public:
  FakeApiServer() {
    server_.new_task_queue = [] { return new httplib::ThreadPool(8); };  // three of them watch
    server_.set_keep_alive_max_count(1);
    server_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Answer(request, response);
          return httplib::Server::HandlerResponse::Handled;
        });
    loopback_.emplace(server_);
  }
  ~FakeApiServer() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    ended_.notify_all();
  }
  KubeEndpoint endpoint() const { return PlainEndpoint(loopback_->port()); }
  void Put(const std::string& path, int status, json body) {
    const std::lock_guard lock(mutex_);
    table_[path] = {status, std::move(body)};
  }
  int Asked(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return asked_[path];
  }

 private:
  void Answer(const httplib::Request& request, httplib::Response& response) {
    if (request.has_param("watch")) {
      response.set_chunked_content_provider("application/json", [this](size_t, httplib::DataSink&) {
        std::unique_lock lock(mutex_);
        ended_.wait(lock, [this] { return ending_; });
        return false;
      });
      return;
    }
    const std::lock_guard lock(mutex_);
    ++asked_[request.path];
    const auto it = table_.find(request.path);
    response.status = it == table_.end() ? 404 : it->second.first;
    const json body =
        it == table_.end() ? json{{"kind", "Status"}, {"code", 404}} : it->second.second;
    response.set_content(body.dump(), "application/json");
  }
  std::mutex mutex_;
  std::map<std::string, std::pair<int, json>> table_;
  std::map<std::string, int> asked_;
  std::condition_variable ended_;
  bool ending_ = false;
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;  // last: it ends before what its answers use
};

json List(json items) {
  return {{"metadata", {{"resourceVersion", "10"}}}, {"items", std::move(items)}};
}

json Job() {
  return {{"metadata",
           {{"name", "crowd"},
            {"namespace", "team"},
            {"uid", "job-uid"},
            {"generation", 2},
            {"resourceVersion", "3"},
            {"creationTimestamp", "2026-01-01T00:00:00Z"}}},
          {"spec",
           {{"replicas", 4},
            {"target", {{"samples", 1000}}},
            {"disruption", {{"podDisruptionBudget", {{"maxUnavailable", 1}}}}},
            {"template", {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "i"}}}}}}}}}}};
}

json Pod(int index) {
  const std::string number = std::to_string(index);
  return {{"metadata",
           {{"name", "crowd-" + number + "-1"},
            {"namespace", "team"},
            {"uid", "uid-" + number},
            {"resourceVersion", "4"},
            {"labels", {{"crowdsurf.io/worker-index", number}, {"crowdsurf.io/incarnation", "1"}}},
            {"ownerReferences",
             {{{"kind", "TrainingJob"},
               {"name", "crowd"},
               {"uid", "job-uid"},
               {"controller", true}}}}}},
          {"spec", {{"nodeName", "node-" + number}}},
          {"status",
           {{"phase", "Running"},
            {"podIP", "10.0.0.1" + number},
            {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
}

class KubeClusterTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string jobs = "/apis/crowdsurf.io/v1alpha1/trainingjobs";
    json pods = json::array(), nodes = json::array();
    for (int i = 0; i < 4; ++i) {
      pods.push_back(Pod(i));
      nodes.push_back({{"metadata", {{"name", "node-" + std::to_string(i)}}}});
    }
    api_.Put(jobs, 200, List({Job()}));
    api_.Put("/api/v1/pods", 200, List(pods));
    api_.Put("/api/v1/nodes", 200, List(nodes));
    api_.Put(kBudgets, 200, json::object());
    client_ = std::make_unique<KubeClient>(api_.endpoint(), KubeClient::Options{.clock = [this] {
                                             return Time::FromNanoseconds(steady_.load());
                                           }});
    KubeClusterOptions options;
    options.trust = [](const TrainingJob&) { return std::string("CA"); };
    options.clock = [this] { return now_; };
    options.probe = [this](const DeathReports::Probe& probe) {
      probes_.push_back(probe);
      return true;
    };
    cluster_ = std::make_unique<KubeCluster>(*client_, options, Rng(1), Logger(), metrics_);
    cluster_->Start();
    const auto until = steady_clock::now() + kPatience;
    while (!cluster_->synced() && steady_clock::now() < until) {
      cluster_->Await(steady_clock::now() + std::chrono::milliseconds(50));
    }
    ASSERT_TRUE(cluster_->synced());
  }
  void TearDown() override {
    client_->Stop();
    cluster_->Stop();
  }
  JobSnapshot Observe() {
    auto snapshot = cluster_->Observe("team/crowd");
    EXPECT_TRUE(snapshot.ok()) << snapshot.status();
    return snapshot.ok() ? *snapshot : JobSnapshot();
  }
  void Report(int reporter, int subject) {
    EXPECT_TRUE(cluster_->PostReport(
        {"uid-" + std::to_string(reporter), "team", {"crowd-" + std::to_string(subject) + "-1"}}));
  }
  std::set<std::string> Touched() { return cluster_->Await(steady_clock::now()); }
  void ShowLease(const char* renewed) {
    api_.Put(kLeases, 200, {{"spec", {{"renewTime", renewed}}}});
  }

  FakeApiServer api_;
  MetricRegistry metrics_;
  WallTime now_ = WallTime::FromNanoseconds(1'800'000'000'000'000'000);
  std::atomic<int64_t> steady_ = 1'000'000'000;  // ns; of the client, whose watches have threads
  std::vector<DeathReports::Probe> probes_;
  std::unique_ptr<KubeClient> client_;
  std::unique_ptr<KubeCluster> cluster_;
};

TEST_F(KubeClusterTest, AGuardThatFailsOnceIsTriedAgainAWhileLaterAndThenNoMore) {
  api_.Put(kBudgets, 503, {{"kind", "Status"}, {"code", 503}});
  Observe();
  const int failed = api_.Asked(kBudgets);
  EXPECT_GE(failed, 1);
  now_ = now_ + Seconds(9);
  Observe();
  EXPECT_EQ(api_.Asked(kBudgets), failed) << "not in every turn of the job";
  api_.Put(kBudgets, 200, json::object());
  now_ = now_ + Seconds(1);
  Observe();
  EXPECT_EQ(api_.Asked(kBudgets), failed + 1);
  now_ = now_ + Seconds(1000);
  Observe();
  EXPECT_EQ(api_.Asked(kBudgets), failed + 1) << "it is as the spec asks";
}

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
  (void)cluster_->Delete({"crowd-0-1", "uid-0", {}, reason::kPeersReportedDead});
  EXPECT_THAT(Observe().suspect_nodes, testing::ElementsAre("node-0"));
  now_ = now_ + Seconds(31);  // nobody speaks of it any more
  Touched();
  EXPECT_THAT(Observe().suspect_nodes, testing::ElementsAre("node-0"));
  ShowLease("2026-01-01T00:00:30Z");
  now_ = now_ + Seconds(2);
  Touched();
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

TEST_F(KubeClusterTest, ANameThatIsTakenIsOursOrTheNextOneOrRefused) {  // pod-lifecycle 3.2
  const std::string space = "/api/v1/namespaces/team/";
  for (const char* made : {"configmaps/crowd-crowdsurf-ca", "services/crowd-peers"}) {
    api_.Put(space + made, 200, json::object());
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
  EXPECT_TRUE(absl::IsAborted(answer())) << "the next decision takes the next number";
  pod["metadata"]["ownerReferences"][0]["uid"] = "another";
  EXPECT_TRUE(absl::IsAlreadyExists(answer()));
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
    api_.Put(space + made, 200, json::object());
  }
  json older = Pod(9);  // first of all by its name
  older["metadata"]["name"] = "crowd-0-0";
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
