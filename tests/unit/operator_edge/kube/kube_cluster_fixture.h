// KubeCluster against an API server that fails when told to and whose clock the test turns: what a
// real one (tests/cluster) cannot be made to do.
//
// FakeApiServer lists what it was given, keeps watches open and silent, and answers everything else
// from a table. One job of four workers, each on a node of its own. One thread a test; the server
// and the watches have theirs.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/edge/kube/kube_cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/operator_edge/kube/plain_endpoint.h"

namespace crowdsurf::controller {

inline constexpr char kBudgets[] =
    "/apis/policy/v1/namespaces/team/poddisruptionbudgets/crowd-workers";
inline const std::string kPodsPath = "/api/v1/namespaces/team/pods";
inline constexpr char kLeases[] =
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0";

// Lists what it was given, keeps watches open and silent, and answers everything else from a table.
class FakeApiServer {
 public:
  FakeApiServer() {
    server_.new_task_queue = [] { return new httplib::ThreadPool(8); };  // three of them watch
    server_.set_keep_alive_max_count(1);
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      Answer(request, response);
    };
    server_.Get(".*", answer);
    server_.Post(".*", answer);
    server_.Put(".*", answer);
    server_.Patch(".*", answer);
    server_.Delete(".*", answer);
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
  // path: of any request, or "POST /api/...": of that method alone, before the other.
  void Put(const std::string& path, int status, nlohmann::json body) {
    const std::lock_guard lock(mutex_);
    table_[path] = {status, std::move(body)};
  }
  // The answers to requests for Leases wait until so many are under way, or a while.
  void GatherLeases(int count) { gather_ = count; }
  int MaxLeasesAtOnce() {
    const std::lock_guard lock(leases_mutex_);
    return max_leases_;
  }
  int Asked(const std::string& path) {  // or "PATCH /api/..."
    const std::lock_guard lock(mutex_);
    return asked_[path];
  }
  // All three watches, once they are open: they are followed by lists.
  void ExpireWatches() {
    EXPECT_TRUE(EventuallyHolds([this] {
      const std::lock_guard lock(mutex_);
      return watching_ >= 3;
    }));
    const std::lock_guard lock(mutex_);
    ++expired_;
    watching_ = 0;
    ended_.notify_all();
  }
  // What the last request of that method and path brought, "DELETE /api/..."; null: nothing.
  nlohmann::json Body(const std::string& request) {
    const std::lock_guard lock(mutex_);
    return bodies_.contains(request) ? nlohmann::json::parse(bodies_[request]) : nlohmann::json();
  }

 private:
  void Answer(const httplib::Request& request, httplib::Response& response) {
    if (request.has_param("watch")) return Watch(response);
    if (gather_ > 0 && request.path.find("/leases/") != std::string::npos) Gather();
    const std::lock_guard lock(mutex_);
    ++asked_[request.path];
    ++asked_[request.method + " " + request.path];
    if (!request.body.empty()) bodies_[request.method + " " + request.path] = request.body;
    auto it = table_.find(request.method + " " + request.path);
    if (it == table_.end()) it = table_.find(request.path);
    response.status = it == table_.end() ? 404 : it->second.first;
    const nlohmann::json body =
        it == table_.end() ? nlohmann::json{{"kind", "Status"}, {"code", 404}} : it->second.second;
    response.set_content(body.dump(), "application/json");
  }
  void Watch(httplib::Response& response) {
    response.set_chunked_content_provider(
        "application/json", [this](size_t, httplib::DataSink& sink) {
          std::unique_lock lock(mutex_);
          ++watching_;
          const int of = expired_;
          ended_.wait(lock, [&] { return ending_ || expired_ != of; });
          if (ending_) return false;
          const std::string gone = "{\"type\": \"ERROR\", \"object\": {\"code\": 410}}\n";
          sink.write(gone.data(), gone.size());
          sink.done();
          return true;
        });
  }
  void Gather() {
    std::unique_lock lock(leases_mutex_);
    max_leases_ = std::max(max_leases_, ++leases_under_way_);
    leases_came_.notify_all();
    leases_came_.wait_for(lock, std::chrono::seconds(2), [this] { return max_leases_ >= gather_; });
    --leases_under_way_;
  }
  std::atomic<int> gather_{0};
  std::mutex leases_mutex_;
  std::condition_variable leases_came_;
  int leases_under_way_ = 0, max_leases_ = 0;
  std::mutex mutex_;
  std::map<std::string, std::pair<int, nlohmann::json>> table_;
  std::map<std::string, int> asked_;
  std::map<std::string, std::string> bodies_;
  std::condition_variable ended_;
  bool ending_ = false;
  int expired_ = 0;   // times that all watches were
  int watching_ = 0;  // watches that are open and have not expired
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;  // last: it ends before what its answers use
};

inline nlohmann::json List(nlohmann::json items, const char* version = "10") {
  return {{"metadata", {{"resourceVersion", version}}}, {"items", std::move(items)}};
}

inline nlohmann::json Job() {
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

// An object that is the job's own, as a server has it.
inline nlohmann::json Owned(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json object = {{"metadata",
                            {{"uid", "object-uid"},
                             {"resourceVersion", "7"},
                             {"labels",
                              {{"app.kubernetes.io/managed-by", "crowdsurf"},
                               {"app.kubernetes.io/part-of", "crowdsurf"},
                               {"app.kubernetes.io/instance", "crowd"},
                               {"crowdsurf.io/job-name", "crowd"},
                               {"crowdsurf.io/job-uid", "job-uid"}}},
                             {"ownerReferences",
                              {{{"apiVersion", "crowdsurf.io/v1alpha1"},
                                {"kind", "TrainingJob"},
                                {"name", "crowd"},
                                {"uid", "job-uid"},
                                {"controller", true}}}}}}};
  object.update(more);
  return object;
}

inline nlohmann::json Pod(int index) {
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

// The API server's answer to a review of the token of Pod(0).
inline nlohmann::json ReviewOfPod0(bool known) {
  return {{"status",
           {{"authenticated", known},
            {"audiences", {"crowdsurf"}},
            {"user",
             {{"username", "system:serviceaccount:team:default"},
              {"extra",
               {{"authentication.kubernetes.io/pod-name", {"crowd-0-1"}},
                {"authentication.kubernetes.io/pod-uid", {"uid-0"}}}}}}}}};
}

class KubeClusterTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string jobs = "/apis/crowdsurf.io/v1alpha1/trainingjobs";
    nlohmann::json pods = nlohmann::json::array(), nodes = nlohmann::json::array();
    for (int i = 0; i < 4; ++i) {
      pods.push_back(Pod(i));
      nodes.push_back({{"metadata", {{"name", "node-" + std::to_string(i)}}}});
    }
    api_.Put(jobs, 200, List({Job()}));
    api_.Put("/api/v1/pods", 200, List(pods));
    api_.Put("/api/v1/nodes", 200, List(nodes));
    api_.Put(kBudgets, 200, Owned());
    Restart();
  }
  // A new life of the operator, on what the server has now.
  void Restart() {
    // First, or the watches of the life before wait for their time to be over.
    if (client_) client_->Stop();
    cluster_.reset();
    const double watches = WatchesAnswered();
    client_ = std::make_unique<KubeClient>(
        api_.endpoint(), KubeClient::Options{
                             .metrics = &metrics_,
                             .clock = [this] { return Time::FromNanoseconds(steady_.load()); },
                         });
    KubeClusterOptions options;
    options.trust = [](const TrainingJob&) { return std::string("CA"); };
    options.clock = [this] { return now_; };
    options.probe = [this](const DeathReports::Probe& probe) {
      probes_.push_back(probe);
      return true;
    };
    options.forget = [this](const std::string& uid) { forgotten_.push_back(uid); };
    options.sweep = [this](std::set<std::string> alive) { swept_.push_back(std::move(alive)); };
    cluster_ = std::make_unique<KubeCluster>(*client_, options, Rng(1), Logger(), metrics_);
    cluster_->Start();
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::seconds(30);  // a test fails by it
    while (!cluster_->synced() && std::chrono::steady_clock::now() < until) {
      cluster_->Await(std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
    }
    ASSERT_TRUE(cluster_->synced());
    // The answer to a watch is news of the server: it must not come in the middle of an outage.
    ASSERT_TRUE(EventuallyHolds([&] { return WatchesAnswered() >= watches + 3; }));
  }
  double WatchesAnswered() const {
    const KubeEndpoint at = api_.endpoint();
    return metrics_.Value(
        "rest_client_requests_total",
        {{"method", "WATCH"}, {"code", "200"}, {"host", at.host + ":" + std::to_string(at.port)}});
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
  // What the job has before its first pod: a create then asks for that pod alone.
  void PutStartObjects() { api_.Put("/api/v1/namespaces/team/services/crowd-peers", 200, Owned()); }
  void Report(int reporter, int subject) {
    EXPECT_TRUE(cluster_->PostReport(
        {"uid-" + std::to_string(reporter), "team", {"crowd-" + std::to_string(subject) + "-1"}}));
  }
  // The pods are listed again, as of that version: these four, the first in that phase, which tells
  // that the list was taken.
  void Relist(const char* version, const char* phase) {
    nlohmann::json pods = nlohmann::json::array();
    for (int i = 0; i < 4; ++i) pods.push_back(Pod(i));
    pods[0]["metadata"]["resourceVersion"] = version;
    pods[0]["status"]["phase"] = phase;
    api_.Put("/api/v1/pods", 200, List(pods, version));
    const PodPhase before = Observe().pods[0].phase;
    api_.ExpireWatches();
    EXPECT_TRUE(EventuallyHolds([&] {
      cluster_->Await(std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
      return Observe().pods[0].phase != before;
    }));
  }
  std::set<std::string> Touched() { return cluster_->Await(std::chrono::steady_clock::now()); }
  // Once what the loop asks and says beside itself is dealt with, and taken.
  std::set<std::string> Answered() {
    EXPECT_TRUE(
        EventuallyHolds([&] { return metrics_.Value("crowdsurf_operator_errands_waiting") == 0; }));
    return Touched();
  }
  void ShowLease(const char* renewed) {
    api_.Put(kLeases, 200, {{"spec", {{"renewTime", renewed}}}});
  }

  FakeApiServer api_;
  MetricRegistry metrics_;
  WallTime now_ = WallTime::FromNanoseconds(1'800'000'000'000'000'000);
  std::atomic<int64_t> steady_ = 1'000'000'000;  // ns; of the client, whose watches have threads
  std::vector<DeathReports::Probe> probes_;
  std::vector<std::set<std::string>> swept_;
  std::vector<std::string> forgotten_;
  std::unique_ptr<KubeClient> client_;
  std::unique_ptr<KubeCluster> cluster_;
};

}  // namespace crowdsurf::controller
