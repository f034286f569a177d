// Three hundred jobs are deleted at once while a hundred nodes are marked: notices do not wait for
// keys, and a pod that can be read no more is not held as it was.
#include <absl/cleanup/cleanup.h>

#include <algorithm>
#include <future>
#include <thread>

#include "operator/edge/reconcile/key_collector.h"
#include "operator/edge/reconcile/reconciler.h"
#include "tests/unit/operator_edge/living_cluster.h"

namespace crowdsurf::controller {
namespace {

using std::chrono::steady_clock;

class BulkDeleteTest : public LivingCluster {
 protected:
  static Json JobCalled(const std::string& name, int replicas) {
    Json job = Job();
    job["metadata"]["name"] = name;
    job["metadata"]["uid"] = "uid-of-" + name;
    job["metadata"]["generation"] = 1;
    job["spec"]["replicas"] = replicas;
    job["spec"].erase("disruption");
    return job;
  }
  // A worker that trains, on a node of its own.
  static Json PodOf(const std::string& job, const std::string& node) {
    Json pod = Pod(0);
    pod["metadata"]["name"] = job + "-0-1";
    pod["metadata"]["uid"] = "pod-of-" + job;
    pod["metadata"]["ownerReferences"][0]["name"] = job;
    pod["metadata"]["ownerReferences"][0]["uid"] = "uid-of-" + job;
    pod["spec"]["nodeName"] = node;
    return pod;
  }
  static std::string Name(const char* kind, int i) { return kind + std::to_string(i); }
  // Jobs that will be deleted, and jobs whose nodes will be marked. Writes are answered after 5 ms.
  void MakeFleet() {
    for (int i = 0; i < kGone; ++i) api_.Put("trainingjobs", JobCalled(Name("gone-", i), 0));
    for (int i = 0; i < kMarked; ++i) {
      const std::string job = Name("runs-", i), node = Name("spot-", i);
      api_.Put("trainingjobs", JobCalled(job, 1));
      api_.Put("nodes", {{"metadata", {{"name", node}}}});
      api_.Put("pods", PodOf(job, node));
    }
    api_.Intercept([](const std::string& method, const std::string&) -> std::optional<int> {
      if (method != "GET") std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return std::nullopt;
    });
  }
  // Marks the nodes, and works as the controller does until every job on them is told: seconds from
  // the mark to each notice.
  std::vector<double> TellMarked(Reconciler& reconciler) {
    const auto marked = steady_clock::now();
    for (int i = 0; i < kMarked; ++i) {
      api_.Change("nodes", Name("spot-", i),
                  {{"spec",
                    {{"taints",
                      {{{"key", "aws-node-termination-handler/spot-itn"},
                        {"value", "now"},
                        {"effect", "NoSchedule"}}}}}}});
    }
    std::vector<double> seconds;
    std::set<std::string> told;
    const auto until = marked + std::chrono::seconds(60);  // a test fails by it
    while (told.size() < kMarked && steady_clock::now() < until) {
      for (const std::string& key : cluster_->Await(steady_clock::now())) {
        const auto plan = reconciler.Reconcile(key, now_);
        if (!plan.ok() || !TellsItsWorker(*plan) || !told.insert(key).second) continue;
        seconds.push_back(std::chrono::duration<double>(steady_clock::now() - marked).count());
      }
    }
    return seconds;
  }
  static bool TellsItsWorker(const Plan& plan) {
    return std::any_of(plan.annotations.begin(), plan.annotations.end(), [](const auto& note) {
      return note.key == kNoticeAnnotation && !note.value.empty();
    });
  }
  static constexpr int kGone = 300, kMarked = 100;
};

TEST_F(BulkDeleteTest, NoticesGoOutWhileTheKeysOfThreeHundredJobsWait) {
  MakeFleet();
  client_ = std::make_unique<KubeClient>(api_.endpoint(), KubeClient::Options{});
  KubeClient notices(api_.endpoint(), KubeClient::Options{});
  metrics_ = std::make_unique<MetricRegistry>();
  // Until it is opened no key can be deleted: the API server is busy with others.
  auto closed = std::make_unique<std::promise<void>>();
  const std::shared_future<void> gate = closed->get_future().share();
  KeyCollector keys({[gate](const std::string&) {
                       gate.wait();
                       return absl::OkStatus();
                     },
                     [](const std::set<std::string>&) { return absl::OkStatus(); }},
                    *metrics_, Logger());
  const absl::Cleanup opened = [&] { closed.reset(); };
  KubeClusterOptions options;
  options.trust = [](const TrainingJob&) { return std::string("CA"); };
  options.clock = [this] { return now_; };
  options.notices = &notices;
  options.forget = [&](const std::string& uid) { keys.Forget(uid); };
  cluster_ = std::make_unique<KubeCluster>(*client_, options, Rng(1), Logger(), *metrics_);
  cluster_->Start();
  ASSERT_TRUE(Until([&] { return cluster_->synced(); }));
  DecideOptions decide;
  decide.notice_first = Milliseconds(250);  // as the program has it
  Reconciler reconciler(*cluster_, decide, *metrics_, Logger());
  for (const std::string& key : cluster_->Jobs()) EXPECT_TRUE(reconciler.Reconcile(key, now_).ok());
  for (int i = 0; i < kGone; ++i) api_.Remove("trainingjobs", "team/" + Name("gone-", i));
  const std::vector<double> seconds = TellMarked(reconciler);
  ASSERT_EQ(seconds.size(), static_cast<size_t>(kMarked));
  for (int i = 0; i < kMarked; ++i) {
    const Json pod = api_.Find("pods", "team/" + Name("runs-", i) + "-0-1");
    EXPECT_TRUE(pod["metadata"]["annotations"].contains(std::string(kNoticeAnnotation))) << i;
  }
  ASSERT_TRUE(Until([&] { return cluster_->Jobs().size() == kMarked; }));
  EXPECT_GE(metrics_->Value("crowdsurf_operator_keys_waiting"), kGone - 1) << "no key has gone yet";
  std::printf("%d notices while %d jobs are deleted: p99 %.3f s\n", kMarked, kGone,
              seconds[kMarked - 2]);
  closed.reset();
  EXPECT_TRUE(EventuallyHolds([&] {
    return metrics_->Value("crowdsurf_operator_keys_collected_total", {{"result", "collected"}}) ==
           kGone;
  }));
  StopOperator();  // what it uses ends with this test
}

// Somebody takes a label away, as to keep a pod for a look at it: it is no worker any more.
TEST_F(BulkDeleteTest, APodThatCanBeReadNoMoreIsGone) {
  api_.Put("trainingjobs", JobCalled("crowd", 1));
  api_.Put("nodes", {{"metadata", {{"name", "spot"}}}});
  api_.Put("pods", PodOf("crowd", "spot"));
  StartOperator();
  ASSERT_TRUE(Until([&] { return Observe().pods.size() == 1; }));
  api_.Change("pods", "team/crowd-0-1",
              {{"metadata", {{"labels", {{"crowdsurf.io/worker-index", nullptr}}}}}});
  EXPECT_TRUE(Until([&] { return Observe().pods.empty(); })) << "it is held as it was, for ever";
  EXPECT_EQ(metrics_->Value("crowdsurf_operator_objects_unreadable_total", {{"resource", "pods"}}),
            1);
}

}  // namespace
}  // namespace crowdsurf::controller
