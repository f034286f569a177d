// A second container that runs on keeps kubelet from ending the agent: its word is fetched before
// the trainer's good end is judged (pod-lifecycle 4.5, 4.6).
#include <gmock/gmock.h>

#include "operator/core/decide/classify.h"
#include "tests/unit/operator_core/decide/world.h"

namespace crowdsurf::controller {
namespace {

using ::testing::IsEmpty;

World EndedBesideOthers(int replicas, int backoff_limit) {
  World world = Running(replicas);
  world.snapshot.job.spec.run.backoff_limit = backoff_limit;
  for (auto& [name, pod] : world.pods) {
    pod.trainer = ContainerEnd{0, "Completed", "", world.now};
    pod.others_run = true;
    pod.ready_since.reset();
  }
  return world;
}

TEST(LastWordsTest, AMetTargetIsNoFailureThoughAnotherContainerRuns) {
  for (const int limit : {0, 6}) {
    World world = EndedBesideOthers(4, limit);
    EXPECT_TRUE(AwaitsWords(world.pods.at("job-0-1"))) << "its agent is asked";
    Plan plan = world.Reconcile();
    EXPECT_THAT(plan.deletes, IsEmpty());
    world.Wait(Seconds(15));
    plan = world.Reconcile();
    EXPECT_EQ(plan.status.failures, 0u);
    EXPECT_FALSE(plan.status.finished());
    ASSERT_EQ(plan.deletes.size(), 4u) << "so that their agents say it";
    EXPECT_EQ(plan.deletes[0].reason, reason::kLastWords);
    EXPECT_FALSE(plan.deletes[0].grace.has_value()) << "the pod's own";
    EXPECT_THAT(plan.creates, IsEmpty()) << "nobody is missing before that is known";
    EXPECT_THAT(world.Reconcile().creates, IsEmpty());
    for (auto& [name, pod] : world.pods) {
      pod.agent = ContainerEnd{0, "Completed", "", world.now};
      pod.last_words = Progress{5000, 40, 2.5, 3, true};
    }
    plan = world.Reconcile();
    EXPECT_TRUE(plan.status.Is(ConditionType::kSucceeded)) << limit;
    EXPECT_EQ(plan.status.failures, 0u);
    EXPECT_EQ(plan.status.disruptions, 0u);
  }
}

TEST(LastWordsTest, AnAgentThatAnswersIsEnough) {
  World world = EndedBesideOthers(2, 0);
  world.Reconcile();
  world.snapshot.progress.target_met = true;
  world.Wait(Seconds(20));
  world.Reconcile();
  world.Wait(world.options.completion_grace);
  EXPECT_TRUE(world.Reconcile().status.Is(ConditionType::kSucceeded));
  EXPECT_EQ(world.snapshot.status.failures, 0u);
}

TEST(LastWordsTest, ATrainerThatEndedTooEarlyIsAFailureAndReplaced) {
  World world = EndedBesideOthers(1, 6);
  world.Reconcile();
  world.Wait(Seconds(15));
  world.Reconcile();
  world.pods.at("job-0-1").agent = ContainerEnd{0, "Completed", "", world.now};
  world.pods.at("job-0-1").last_words = Progress{50, 4, 2.5, 3, false};
  EXPECT_EQ(world.Reconcile().status.failures, 1u);
  EXPECT_EQ(world.snapshot.status.last_failure->reason, reason::kEndedBeforeTarget);
  world.Bury();
  world.Wait(Seconds(10));
  EXPECT_EQ(world.Reconcile().creates.size(), 1u);
}

TEST(LastWordsTest, AnAgentThatNeverSpeaksIsNotWaitedForForEver) {
  World world = EndedBesideOthers(1, 6);
  world.Reconcile();
  world.Wait(Seconds(15));
  world.Reconcile();
  ASSERT_TRUE(world.pods.at("job-0-1").deleted.has_value());
  const WallTime due = world.now + world.pods.at("job-0-1").grace + Seconds(15);
  EXPECT_EQ(world.Reconcile().requeue_at, due);
  world.now = due;
  EXPECT_EQ(world.Reconcile().status.failures, 1u);
}

TEST(LastWordsTest, OneThatWentWithoutAWordIsNoFailureOfAnybodys) {
  World world = EndedBesideOthers(2, 0);
  world.Reconcile();
  world.Wait(Seconds(15));
  world.Reconcile();
  world.snapshot.progress.target_met = true;  // another worker's word
  world.Bury();
  world.Reconcile();
  EXPECT_TRUE(world.snapshot.status.Is(ConditionType::kSucceeded));
  EXPECT_EQ(world.snapshot.status.failures, 0u);
  EXPECT_EQ(world.snapshot.status.disruptions, 0u) << "nothing is lost after the target";
}

TEST(LastWordsTest, ADeletionThatCameBeforeIsADisruption) {  // pod-lifecycle 4.1
  PodFacts pod;
  pod.node = "n";
  pod.trainer = ContainerEnd{0, "Completed", "", WallTime::FromNanoseconds(60'000'000'000)};
  pod.others_run = true;
  pod.deleted = *pod.trainer->at + Seconds(1);
  const NodeFacts node;
  EXPECT_EQ(Classify(pod, &node, {}).reason, reason::kPodDeleted);
}

}  // namespace
}  // namespace crowdsurf::controller
