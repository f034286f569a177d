// Workers that the status knows and the watch lacks: the API server is asked before they count as
// gone, and the deciding thread does not wait for its answer.
#include <gmock/gmock.h>

#include "operator/core/decide/decide.h"
#include "operator/edge/reconcile/reconciler.h"
#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"
#include "tests/unit/operator_edge/living_cluster.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kMissing[] = "/api/v1/namespaces/team/pods/crowd-3-1";

// A leader that has just taken over: the status knows four workers, and its watch three.
class VanishedPodsTest : public KubeClusterTest {
 protected:
  void SetUp() override {
    KubeClusterTest::SetUp();
    TrainingJobStatus status = Observe().status;
    for (int index = 0; index < 4; ++index) status.incarnations[index] = 1;
    json job = Job();
    job["status"] = StatusToJson(status);
    api_.Put("/apis/crowdsurf.io/v1alpha1/trainingjobs", 200, List({job}));
    api_.Put("/api/v1/pods", 200, List({Pod(0), Pod(1), Pod(2)}));
    Restart();
  }
  // As a turn of the job: what it decides, after it asked.
  Plan Ask() {
    const JobSnapshot snapshot = Observe();
    Plan plan = Decide(snapshot, now_);
    if (!plan.ask_pods.empty()) cluster_->AskPods(snapshot.job, plan.ask_pods);
    return plan;
  }
};

TEST_F(VanishedPodsTest, OneThatIsThereIsNotMadeTwice) {
  api_.Put(kMissing, 200, Pod(3));
  const Plan plan = Ask();
  EXPECT_THAT(plan.ask_pods, ElementsAre("crowd-3-1"));
  EXPECT_THAT(plan.creates, IsEmpty());
  EXPECT_EQ(plan.status.disruptions, 0u);
  EXPECT_THAT(Answered(), testing::Contains("team/crowd"));
  EXPECT_EQ(Observe().pods.size(), 4u);
  const Plan next = Ask();
  EXPECT_THAT(next.ask_pods, IsEmpty());
  EXPECT_THAT(next.creates, IsEmpty());
  EXPECT_EQ(api_.Asked(kMissing), 1);
}

TEST_F(VanishedPodsTest, OneThatTheServerDoesNotKnowIsGone) {
  EXPECT_THAT(Ask().creates, IsEmpty());
  EXPECT_THAT(Answered(), testing::Contains("team/crowd"));
  const Plan plan = Ask();
  EXPECT_EQ(plan.status.disruptions, 1u);
  ASSERT_EQ(plan.creates.size(), 1u);
  EXPECT_EQ(plan.creates[0].name, "crowd-3-2");
  EXPECT_EQ(api_.Asked(kMissing), 1);
}

// As one that somebody took the labels off: no watch of workers will ever show it.
TEST_F(VanishedPodsTest, OneThatIsNoWorkerAnyMoreIsGone) {
  json pod = Pod(3);
  pod["metadata"].erase("labels");
  api_.Put(kMissing, 200, pod);
  (void)Ask();
  Answered();
  EXPECT_THAT(Observe().gone_pods, ElementsAre("crowd-3-1"));
}

TEST_F(VanishedPodsTest, WithoutAnAnswerItIsAskedForAgainASecondLater) {
  api_.Put(kMissing, 503, {{"kind", "Status"}, {"code", 503}});
  (void)Ask();
  Answered();
  Plan plan = Ask();
  EXPECT_THAT(plan.creates, IsEmpty()) << "nobody says that it is gone";
  EXPECT_EQ(plan.requeue_at, now_ + Seconds(1));
  Answered();
  EXPECT_EQ(api_.Asked(kMissing), 1);
  now_ = now_ + Seconds(1);
  api_.Put(kMissing, 404, {{"kind", "Status"}, {"code", 404}});
  (void)Ask();
  Answered();
  EXPECT_EQ(api_.Asked(kMissing), 2);
  EXPECT_EQ(Ask().creates.size(), 1u);
}

class SeenToGoTest : public LivingCluster {};

TEST_F(SeenToGoTest, AWorkerThatItsWatchSawGoIsNotAskedFor) {
  Start();
  Reconciler reconciler(*cluster_, DecideOptions{}, *metrics_, Logger());
  ASSERT_TRUE(Until([&] {
    (void)reconciler.Reconcile(kJob, now_);
    return api_.Keys("pods").size() == 4 && Shown().contains("conditions");
  }));
  api_.Remove("pods", "team/crowd-2-1");
  ASSERT_TRUE(Until([&] { return Observe().pods.size() == 3; }));
  EXPECT_THAT(Observe().gone_pods, ElementsAre("crowd-2-1"));
  const auto plan = reconciler.Reconcile(kJob, now_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->ask_pods, IsEmpty());
  EXPECT_EQ(plan->status.disruptions, 1u);
}

}  // namespace
}  // namespace crowdsurf::controller
