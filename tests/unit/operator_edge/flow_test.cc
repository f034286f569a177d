// The operator's turn against an API server that remembers: what is counted when writes fail, what
// becomes of answers that are lost, of hostile text, and of a loop that is stuck.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "operator/edge/controller.h"
#include "operator/edge/kube/lease.h"
#include "operator/edge/reconcile/pulse.h"
#include "tests/unit/operator_edge/living_cluster.h"

namespace crowdsurf::controller {
namespace {

constexpr char kStatusPath[] =
    "/apis/crowdsurf.io/v1alpha1/namespaces/team/trainingjobs/crowd/status";
constexpr char kPodsPath[] = "/api/v1/namespaces/team/pods";

class FlowTest : public LivingCluster {
 protected:
  void PutJob(int replicas, const char* criterion) {
    Json job = Job();
    job["spec"]["replicas"] = replicas;
    job["spec"]["successPolicy"] = {{"criterion", criterion}};
    job["spec"].erase("disruption");
    api_.Put("trainingjobs", job);
    StartOperator();
    reconciler_ = std::make_unique<Reconciler>(*cluster_, DecideOptions{}, *metrics_, Logger());
  }
  StatusOr<Plan> Turn() {
    (void)Touched();
    now_ = now_ + Seconds(1);
    return reconciler_->Reconcile(kJob, now_);
  }
  // As its kubelet: placed, and its trainer has ended.
  void EndTrainer(const std::string& pod, int code) {
    api_.Change("pods", "team/" + pod,
                {{"spec", {{"nodeName", "node-0"}}},
                 {"status",
                  {{"phase", "Running"},
                   {"containerStatuses",
                    {{{"name", "trainer"}, {"state", {{"terminated", {{"exitCode", code}}}}}}}}}}});
    api_.Put("nodes", {{"metadata", {{"name", "node-0"}}}});
    EXPECT_TRUE(Until([&] {
      const JobSnapshot seen = Observe();
      return std::any_of(seen.pods.begin(), seen.pods.end(), [&](const PodFacts& facts) {
        return facts.name == pod && facts.trainer && seen.nodes.contains("node-0");
      });
    }));
  }
  void LiveAgain() {
    api_.Intercept({});
    StartOperator();
    reconciler_ = std::make_unique<Reconciler>(*cluster_, DecideOptions{}, *metrics_, Logger());
  }
  void RefuseStatus(int code) {
    api_.Intercept([code](const std::string& method, const std::string& path) {
      return method == "PATCH" && path == kStatusPath ? std::optional(code) : std::nullopt;
    });
  }
  std::unique_ptr<Reconciler> reconciler_;
};

TEST_F(FlowTest, ASuccessThatCouldNotBeWrittenDoesNotTrainAgain) {
  for (const int code : {409, 500}) {
    PutJob(1, "AllSucceeded");
    ASSERT_TRUE(Turn().ok());
    EndTrainer("crowd-0-1", 0);
    RefuseStatus(code);
    EXPECT_FALSE(Turn().ok());
    EXPECT_FALSE(api_.Find("pods", "team/crowd-0-1")["metadata"].contains("deletionTimestamp"));
    LiveAgain();
    ASSERT_TRUE(Turn().ok());
    EXPECT_EQ(Shown()["state"], "Succeeded");
    ASSERT_TRUE(Turn().ok());
    EXPECT_EQ(api_.Keys("pods"), std::vector<std::string>{"team/crowd-0-1"});
    EXPECT_EQ(Shown()["disruptions"]["total"], 0);
    api_.Remove("pods", "team/crowd-0-1");
    api_.Remove("trainingjobs", kJob);
  }
}

TEST_F(FlowTest, AFailureThatCouldNotBeWrittenCountsOnceAndAsAFailure) {
  PutJob(1, "TargetReached");
  ASSERT_TRUE(Turn().ok());
  EndTrainer("crowd-0-1", 3);
  RefuseStatus(409);
  EXPECT_FALSE(Turn().ok());
  LiveAgain();
  ASSERT_TRUE(Turn().ok());
  LiveAgain();
  ASSERT_TRUE(Turn().ok());
  EXPECT_EQ(Shown()["failures"]["total"], 1);
  EXPECT_EQ(Shown()["failures"]["counted"].size(), 1u) << "towards backoffLimit";
  EXPECT_EQ(Shown()["disruptions"]["total"], 0);
}

TEST_F(FlowTest, ACreateWhoseAnswerIsLostIsFoundAndItsEndCounted) {
  PutJob(1, "TargetReached");
  api_.Intercept([](const std::string& method, const std::string& path) {
    return method == "POST" && path == kPodsPath ? std::optional(ObjectServer::kCut) : std::nullopt;
  });
  ASSERT_TRUE(Turn().ok());
  ASSERT_EQ(api_.Keys("pods"), std::vector<std::string>{"team/crowd-0-1"});
  api_.Intercept({});
  EndTrainer("crowd-0-1", 3);
  ASSERT_TRUE(Turn().ok());
  EXPECT_EQ(Shown()["failures"]["total"], 1);
  EXPECT_EQ(Shown()["disruptions"]["total"], 0);
}

TEST_F(FlowTest, TextThatWouldBeCutWithinACharacterIsAConditionAndNoCrash) {
  Json job = Job();
  std::string peer = "a";
  for (int i = 0; i < 30; ++i) peer += "\xE2\x82\xAC";
  job["spec"]["discovery"] = {{"bootstrapPeers", {peer}}};
  api_.Put("trainingjobs", job);
  StartOperator();
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_->Observe(kJob).status()));
  EXPECT_EQ(Shown()["conditions"][0]["type"], "Accepted");
  EXPECT_EQ(Shown()["conditions"][0]["status"], "False");
}

TEST_F(FlowTest, AnErrorIsACondition) {
  Start();
  ASSERT_TRUE(cluster_->ShowError(kJob, "byte \xFF").ok());
  EXPECT_EQ(Shown()["conditions"][0]["type"], "Degraded");
  EXPECT_EQ(Shown()["conditions"][0]["reason"], "ReconcileError");
  EXPECT_EQ(Shown()["conditions"][0]["message"], "byte \xEF\xBF\xBD");
}

TEST_F(FlowTest, AnExceptionInTheLoopEndsNeitherItNorTheJobs) {
  Start();
  ControllerOptions options;
  options.ask_agents = false;
  bool thrown = false;
  options.leading = [&] {
    if (!std::exchange(thrown, true)) throw std::runtime_error("once");
    return true;
  };
  Controller controller(*cluster_, options, *metrics_, Logger());
  std::thread loop([&] { controller.Run(); });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (api_.Keys("pods").size() < 4 && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  controller.Stop();
  loop.join();
  EXPECT_EQ(api_.Keys("pods").size(), 4u);
  EXPECT_EQ(metrics_->Value("crowdsurf_operator_exceptions_total", {{"thread", "loop"}}), 1);
}

// The API server keeps a create waiting; the clock is the test's.
TEST_F(FlowTest, AStuckLoopLosesItsLease) {
  std::mutex mutex;
  std::condition_variable changed;
  bool stuck = false, open = false;
  int renewals = 0;
  api_.Intercept([&](const std::string& method, const std::string& path) -> std::optional<int> {
    std::unique_lock lock(mutex);
    if (method == "PUT" && path.find("/leases/") != std::string::npos) ++renewals;
    if (method == "POST" && path == kPodsPath) {
      stuck = true;
      changed.notify_all();
      changed.wait(lock, [&] { return open; });
    }
    changed.notify_all();
    return std::nullopt;
  });
  Start();
  std::atomic<int64_t> steady{1};
  Pulse pulse([&] { return Time::FromNanoseconds(steady); });
  KubeClient lease_client(api_.endpoint(), {}), lease_watch(api_.endpoint(), {});
  Lease lease(lease_client, lease_watch,
              {.space = "team",
               .identity = "me",
               .duration = Milliseconds(300),
               .renew_deadline = Milliseconds(200),
               .retry = Milliseconds(10),
               .fit = [&] { return pulse.beats(); }},
              Logger(), *metrics_);
  lease.Start();
  ControllerOptions options;
  options.ask_agents = false;
  options.progress = [&] { pulse.Beat(); };
  Controller controller(*cluster_, options, *metrics_, Logger());
  std::thread loop([&] { controller.Run(); });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return stuck; });
  // It is asked again while nobody knows that the loop is stuck.
  const int before = renewals;
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return renewals > before; }));
  EXPECT_TRUE(pulse.beats());
  steady = Seconds(21).nanoseconds();
  EXPECT_FALSE(pulse.beats()) << "/healthz says so";
  const int last = renewals + 1;  // one may be under way
  lock.unlock();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (lease.leading() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_FALSE(lease.leading());
  lock.lock();
  EXPECT_LE(renewals, last);
  open = true;
  changed.notify_all();
  // The loop goes on, and so does the lease.
  const int then = renewals;
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return renewals > then; }));
  lock.unlock();
  controller.Stop();
  loop.join();
  lease.Stop();
}

}  // namespace
}  // namespace crowdsurf::controller
