// What the operator holds of an API server's many large objects: what it uses of them, and no JSON.
//
// Compared with the allocator's own account of live bytes, the server's among them, which makes
// each object as it sends it. Objects are large in what nobody uses, as pods are.
#include <gtest/gtest.h>
#include <httplib.h>
#include <malloc.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "operator/edge/kube/kube_cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/operator_edge/kube/plain_endpoint.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr int kPods = 500;
constexpr int kVariables = 200;  // of 100 bytes each: 20 KB a pod, 50 KB and more as JSON values
constexpr double kMiB = 1 << 20;

size_t LiveBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::string PodText(int index, int version) {
  static const std::string kVariableList = [] {
    json list = json::array();
    for (int i = 0; i < kVariables; ++i) {
      list.push_back({{"name", "VARIABLE_" + std::to_string(i)}, {"value", std::string(60, 'x')}});
    }
    return list.dump();
  }();
  const std::string number = std::to_string(index);
  const json metadata = {
      {"name", "crowd-" + number + "-1"},
      {"namespace", "team"},
      {"uid", "uid-" + number},
      {"resourceVersion", std::to_string(version)},
      {"labels", {{"crowdsurf.io/worker-index", number}, {"crowdsurf.io/incarnation", "1"}}},
      {"ownerReferences",
       {{{"kind", "TrainingJob"}, {"name", "crowd"}, {"uid", "u"}, {"controller", true}}}}};
  return absl::StrCat(R"({"status":{"phase":"Pending"},"metadata":)", metadata.dump(),
                      R"(,"spec":{"containers":[{"name":"trainer","env":)", kVariableList, "}]}}");
}

class OperatorMemoryTest : public testing::Test {
 protected:
  OperatorMemoryTest() {
    server_.new_task_queue = [] { return new httplib::ThreadPool(24); };
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      Answer(request, response);
    };
    server_.Get(".*", answer);
    server_.Post(".*", answer);
    server_.Patch(".*", answer);
    loopback_.emplace(server_);
    client_.emplace(PlainEndpoint(loopback_->port()), KubeClient::Options{});
    KubeClusterOptions options;
    options.trust = [](const TrainingJob&) { return std::string("CA"); };
    options.clock = [] { return WallTime::FromNanoseconds(1'800'000'000'000'000'000); };
    cluster_.emplace(*client_, options, Rng(1), Logger(), metrics_);
  }
  ~OperatorMemoryTest() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    ended_.notify_all();
    client_->Stop();
    cluster_->Stop();
  }
  void SetUp() override {
    if (LiveBytes() == 0) GTEST_SKIP() << "the allocator keeps no account: a sanitizer's";
  }

  void Answer(const httplib::Request& request, httplib::Response& response) {
    if (request.method == "POST") {
      return response.set_content(PodText(++made_, 20), "application/json");
    }
    if (request.method != "GET") return response.set_content("{}", "application/json");
    const bool pods = request.path == "/api/v1/pods";
    if (request.path.find("/namespaces/") != std::string::npos) {  // nothing of a job is there yet
      response.status = 404;
      return response.set_content("{}", "application/json");
    }
    if (request.has_param("watch")) {
      return response.set_chunked_content_provider(
          "json", [this, pods](size_t, httplib::DataSink& sink) { return Tell(pods, sink); });
    }
    if (!pods || listed_ == 0) return response.set_content(kEmpty, "application/json");
    response.set_chunked_content_provider("json", [this](size_t, httplib::DataSink& sink) {
      std::string text = R"({"metadata": {"resourceVersion": "10"}, "items": [)";
      for (int i = 0; i < listed_; ++i) {
        text += (i == 0 ? "" : ",") + PodText(i, 5);
        sink.write(text.data(), text.size());
        text.clear();
        Look();
      }
      sink.write("]}", 2);
      sink.done();
      return true;
    });
  }
  // A watch: what is to be told, and then silence.
  bool Tell(bool pods, httplib::DataSink& sink) {
    for (int i = 0; pods && i < told_; ++i) {
      const std::string line =
          R"({"type": "MODIFIED", "object": )" + PodText(i % kPods, 20 + i) + "}\n";
      if (!sink.write(line.data(), line.size())) return false;
      ++sent_;
      Look();
    }
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return ending_; });
    return false;
  }
  void Look() {
    const size_t live = LiveBytes();
    for (size_t most = max_; live > most && !max_.compare_exchange_weak(most, live);) {
    }
  }
  double MaxMiB(size_t before) const {
    return max_ > before ? static_cast<double>(max_ - before) / kMiB : 0;
  }
  bool Synced() {
    return EventuallyHolds([&] {
      cluster_->Await(std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
      return cluster_->synced();
    });
  }

  static constexpr char kEmpty[] = R"({"metadata": {"resourceVersion": "10"}, "items": []})";
  int listed_ = 0, told_ = 0;  // pods
  std::atomic<int> made_{0}, sent_{0};
  std::atomic<size_t> max_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  MetricRegistry metrics_;
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;
  std::optional<KubeClient> client_;
  std::optional<KubeCluster> cluster_;
};

TEST_F(OperatorMemoryTest, AListIsHeldAsWhatIsUsedOfIt) {
  listed_ = kPods;
  const size_t before = LiveBytes();
  cluster_->Start();
  ASSERT_TRUE(Synced());
  Look();
  EXPECT_EQ(metrics_.Value("crowdsurf_operator_cache_objects", {{"resource", "pods"}}), kPods);
  EXPECT_LE(MaxMiB(before), 8) << "of 10 MB of text, 30 MB and more as JSON values";
}

// The host decides about another job meanwhile, and takes no news.
TEST_F(OperatorMemoryTest, EventsThatWaitAreHeldAsWhatIsUsedOfThem) {
  told_ = 2 * kPods;
  const size_t before = LiveBytes();
  cluster_->Start();
  EXPECT_TRUE(EventuallyHolds([&] { return sent_ == told_; }));
  EXPECT_LE(MaxMiB(before), 8) << "of 20 MB of text";
}

TEST_F(OperatorMemoryTest, AnswersToCreatesAreHeldAsWhatIsUsedOfThem) {
  cluster_->Start();
  ASSERT_TRUE(Synced());
  TrainingJob job;
  job.name = "crowd";
  job.space = "team";
  job.uid = "u";
  job.spec.pod_template = {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "i"}}}}}}};
  std::vector<CreatePod> creates(kPods / 2);
  for (int i = 0; i < kPods / 2; ++i) {
    creates[static_cast<size_t>(i)].name = "crowd-" + std::to_string(i) + "-1";
    creates[static_cast<size_t>(i)].index = i;
  }
  const size_t before = LiveBytes();
  for (const Status& answer : cluster_->CreateAll(job, creates, {}))
    EXPECT_TRUE(answer.ok()) << answer;
  Look();
  EXPECT_LE(MaxMiB(before), 8) << "of 5 MB of text";
}

}  // namespace
}  // namespace crowdsurf::controller
