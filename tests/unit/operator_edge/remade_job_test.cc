// A job that is deleted and made again under its name: the new one begins with nothing, whichever
// way the news come.
#include "operator/edge/reconcile/reconciler.h"
#include "tests/unit/operator_edge/living_cluster.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

json Remade(const char* version) {
  json job = Job();
  job["metadata"]["uid"] = "second-uid";
  job["metadata"]["resourceVersion"] = version;
  job["metadata"]["generation"] = 1;
  job["spec"].erase("disruption");
  return job;
}

class RemadeJobTest : public KubeClusterTest {
 protected:
  // The watches expire, and the lists after them show another job under the name.
  void RemakeInAGap() {
    api_.Put("/apis/crowdsurf.io/v1alpha1/trainingjobs", 200, List({Remade("20")}, "21"));
    api_.Put("/api/v1/pods", 200, List(json::array(), "21"));
    api_.ExpireWatches();
    ASSERT_TRUE(EventuallyHolds([&] {
      cluster_->Await(std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
      const JobSnapshot seen = Observe();
      return seen.job.uid == "second-uid" && seen.pods.empty();
    }));
  }
  int EventsOf(const TrainingJob& job, int count) {
    const std::string path = "POST /api/v1/namespaces/team/events";
    const int before = api_.Asked(path);
    for (int i = 0; i < count; ++i) {
      cluster_->Record(job, {EventType::kNormal, reason::kReplacement, "said"});
    }
    Answered();
    return api_.Asked(path) - before;
  }
};

TEST_F(RemadeJobTest, AListThatShowsAnotherUidEndsWhatWasToldOfTheFirst) {
  cluster_->SetProgress("team/crowd", "job-uid", Progress{1000, 40, 2.0, 9, true});
  ASSERT_TRUE(Observe().progress.target_met);
  RemakeInAGap();
  const JobSnapshot seen = Observe();
  EXPECT_FALSE(seen.progress.target_met);
  EXPECT_EQ(seen.progress.samples, 0u);
  const Plan plan = Decide(seen, now_);
  EXPECT_FALSE(plan.status.Is(ConditionType::kSucceeded)) << "with no worker";
  EXPECT_EQ(plan.creates.size(), 4u);
  cluster_->SetProgress("team/crowd", "job-uid", Progress{1000, 40, 2.0, 9, true});
  EXPECT_FALSE(Observe().progress.target_met) << "a late word about the first";
}

TEST_F(RemadeJobTest, TheFirstJobsEventsAreNotTakenFromTheSecondsBudget) {
  const TrainingJob first = Observe().job;
  api_.Put("POST /api/v1/namespaces/team/events", 201, json::object());
  EXPECT_EQ(EventsOf(first, 40), 25) << "the budget of a job";
  RemakeInAGap();
  EXPECT_EQ(EventsOf(Observe().job, 1), 1);
  EXPECT_EQ(EventsOf(first, 1), 0) << "it is gone";
}

TEST_F(RemadeJobTest, ItsKeyIsForgottenAlsoWhereNothingSaidThatTheFirstIsGone) {
  forgotten_.clear();
  RemakeInAGap();
  EXPECT_EQ(forgotten_, std::vector<std::string>{"job-uid"});
}

class RemadeLivingJobTest : public LivingCluster {
 protected:
  void Remake() {
    api_.Remove("trainingjobs", kJob);
    api_.Put("trainingjobs", Remade("0"));
  }
};

// The write is refused, the newest object is read, and it is another job's.
TEST_F(RemadeLivingJobTest, AConflictThatShowsAnotherUidEndsWhatWasToldOfTheFirst) {
  Start();
  cluster_->SetProgress(kJob, "job-uid", Progress{1000, 40, 2.0, 9, true});
  const JobSnapshot first = Observe();
  ASSERT_TRUE(first.progress.target_met);
  Remake();
  TrainingJobStatus status = first.status;
  status.failures = 3;
  EXPECT_FALSE(cluster_->WriteStatus(first.job, status).ok());
  ASSERT_EQ(Observe().job.uid, "second-uid") << "before any watch told";
  EXPECT_FALSE(Observe().progress.target_met);
  AwaitVersion();  // the older news of the first one's end are of no account
  ASSERT_EQ(Observe().job.uid, "second-uid");
  EXPECT_FALSE(Observe().progress.target_met);
  EXPECT_FALSE(Shown().contains("failures"));
}

// kubectl delete and apply: both events are taken together, and no turn finds the job gone.
TEST_F(RemadeLivingJobTest, TheFirstJobsRefusalDoesNotHoldTheSecondBack) {
  Json job = Job();
  job["spec"].erase("disruption");
  api_.Put("trainingjobs", job);
  StartOperator();
  Reconciler reconciler(*cluster_, DecideOptions{}, *metrics_, Logger());
  api_.Intercept([](const std::string& method, const std::string& path) {
    return method == "POST" && path == "/api/v1/namespaces/team/pods" ? std::optional(403)
                                                                      : std::nullopt;
  });
  for (int turn = 0; turn < 8; ++turn) {
    (void)Touched();
    ASSERT_TRUE(reconciler.Reconcile(kJob, now_).ok());
    now_ = now_ + Seconds(61);
  }
  (void)reconciler.Reconcile(kJob, now_);  // refused just now: a minute's back-off
  api_.Intercept({});
  Remake();
  ASSERT_TRUE(Until([&] {
    const auto seen = cluster_->Observe(kJob);
    return seen.ok() && seen->job.uid == "second-uid";
  }));
  (void)Touched();
  const auto plan = reconciler.Reconcile(kJob, now_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->creates.size(), 4u) << "it waits for a refusal that was not its own";
  const Condition* degraded = plan->status.Find(ConditionType::kDegraded);
  EXPECT_TRUE(degraded == nullptr || degraded->reason != reason::kForbidden);
}

}  // namespace
}  // namespace crowdsurf::controller
