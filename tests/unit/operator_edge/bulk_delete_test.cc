// Three hundred jobs are deleted at once while a hundred nodes are marked: notices do not wait for
// keys, and a pod that can be read no more is not held as it was.
#include <absl/cleanup/cleanup.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "operator/edge/controller.h"
#include "operator/edge/kube/lease.h"
#include "operator/edge/reconcile/key_collector.h"
#include "operator/edge/reconcile/reconciler.h"
#include "tests/support/eventually.h"
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
  // Marks the nodes, and gives the jobs on them their turns until each has told its worker: how
  // many have.
  size_t TellMarked(Reconciler& reconciler) {
    for (int i = 0; i < kMarked; ++i) MarkNode(i);
    std::set<std::string> told;
    const auto until = steady_clock::now() + std::chrono::seconds(60);  // a test fails by it
    while (told.size() < kMarked && steady_clock::now() < until) {
      for (const std::string& key : cluster_->Await(steady_clock::now())) {
        const auto plan = reconciler.Reconcile(key, now_);
        if (plan.ok() && TellsItsWorker(*plan)) told.insert(key);
      }
    }
    return told.size();
  }
  void MarkNode(int i) {
    api_.Change("nodes", Name("spot-", i),
                {{"spec",
                  {{"taints",
                    {{{"key", "aws-node-termination-handler/spot-itn"},
                      {"value", "now"},
                      {"effect", "NoSchedule"}}}}}}});
  }
  bool IsTold(int i) {
    const Json pod = api_.Find("pods", "team/" + Name("runs-", i) + "-0-1");
    return pod["metadata"].value("annotations", Json::object()).contains(kNoticeAnnotation);
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
  ASSERT_EQ(TellMarked(reconciler), static_cast<size_t>(kMarked));
  for (int i = 0; i < kMarked; ++i) EXPECT_TRUE(IsTold(i)) << i;
  ASSERT_TRUE(Until([&] { return cluster_->Jobs().size() == kMarked; }));
  EXPECT_GE(metrics_->Value("crowdsurf_operator_keys_waiting"), kGone - 1) << "no key has gone yet";
  closed.reset();
  EXPECT_TRUE(EventuallyHolds([&] {
    return metrics_->Value("crowdsurf_operator_keys_collected_total", {{"result", "collected"}}) ==
           kGone;
  }));
  StopOperator();  // what it uses ends with this test
}

// What an API server was asked for, as it came in; each answer takes 10 ms.
class Arrivals {
 public:
  using Clock = steady_clock;
  std::optional<int> Take(const std::string& method, const std::string& path) {
    const size_t name = path.find("/pods/runs-");
    {
      const std::lock_guard lock(mutex_);
      // A worker's first patch is its notice.
      if (method == "PATCH" && name != std::string::npos) {
        if (seen_.insert(path).second) notices_.push_back({Clock::now(), others_});
      } else if (method != "GET") {
        ++others_;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return std::nullopt;
  }
  struct Notice {
    Clock::time_point at;
    int others;  // writes of any other kind that came before it
  };
  std::vector<Notice> notices() {
    const std::lock_guard lock(mutex_);
    return notices_;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> seen_;
  std::vector<Notice> notices_;
  int others_ = 0;
};

// How long notices took, and, sorted, how many other writes came before each.
std::vector<int> Print(const std::vector<Arrivals::Notice>& notices,
                       Arrivals::Clock::time_point from) {
  std::vector<double> seconds;
  std::vector<int> others;
  for (const Arrivals::Notice& notice : notices) {
    seconds.push_back(std::chrono::duration<double>(notice.at - from).count());
    others.push_back(notice.others);
  }
  std::sort(seconds.begin(), seconds.end());
  std::sort(others.begin(), others.end());
  if (others.size() < 2) return others;
  const size_t middle = others.size() / 2, late = others.size() - 2;
  std::printf(
      "jobs deleted, %zu nodes marked, 10 ms an answer: notices p50 %.3f s, p99 %.3f s; writes "
      "before a notice p50 %d, p99 %d\n",
      others.size(), seconds[middle], seconds[late], others[middle], others[late]);
  return others;
}

TEST_F(BulkDeleteTest, NoNoticeWaitsForTheTurnsOfManyJobs) {
  MakeFleet();
  api_.Intercept({});
  StartOperator();
  Arrivals arrivals;
  std::atomic<bool> marking{false};
  std::atomic<int> turns{0}, without_lead{0};
  KubeClient renewals(api_.endpoint(), {.connections = 1}), watch(api_.endpoint(), {});
  // A minute, where the program has ten seconds: this machine may be busy with other tests.
  Lease lease(renewals, watch,
              {.space = "system",
               .identity = "one",
               .duration = Seconds(90),
               .renew_deadline = Seconds(60)},
              Logger(), *metrics_);
  lease.Start();
  ASSERT_TRUE(EventuallyHolds([&] { return lease.leading(); }));
  ControllerOptions options;
  options.ask_agents = false;
  options.progress = [&] {
    while (marking) std::this_thread::yield();
    if (!lease.leading()) ++without_lead;
    ++turns;
  };
  Controller controller(*cluster_, options, *metrics_, Logger());
  std::thread loop([&] { controller.Run(); });
  const absl::Cleanup end = [&] {
    marking = false;
    controller.Stop();
    loop.join();
    lease.Stop();
    watch.Stop();
  };
  // Every job has had its first turn.
  ASSERT_TRUE(EventuallyHolds([&] {
    for (const std::string& key : api_.Keys("trainingjobs")) {
      if (!api_.Find("trainingjobs", key).contains("status")) return false;
    }
    return true;
  }));
  marking = true;
  api_.Intercept([&](const std::string& method, const std::string& path) {
    return arrivals.Take(method, path);
  });
  const auto marked = steady_clock::now();
  for (int i = 0; i < kMarked; ++i) {
    for (int gone = 0; gone < kGone / kMarked; ++gone)
      api_.Remove("trainingjobs", "team/" + Name("gone-", i * (kGone / kMarked) + gone));
    MarkNode(i);
  }
  marking = false;
  EXPECT_TRUE(EventuallyHolds([&] { return arrivals.notices().size() == kMarked; }));
  // A quiet end: the interceptor dies with this test.
  EXPECT_TRUE(EventuallyHolds([&] {
    for (int i = 0; i < kMarked; ++i) {
      if (!IsTold(i)) return false;
    }
    return true;
  }));
  api_.Intercept({});
  const std::vector<int> others = Print(arrivals.notices(), marked);
  ASSERT_EQ(others.size(), static_cast<size_t>(kMarked));
  EXPECT_LE(others[kMarked - 2], 60) << "of some four hundred that the turns of all jobs make";
  EXPECT_EQ(without_lead, 0);
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
