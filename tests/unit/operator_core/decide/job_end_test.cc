// How a job ends: its target, its deadlines, its deletion, and who is waited for meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/core/observe/observe.h"
#include "tests/unit/operator_core/decide/world.h"

namespace crowdsurf::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

TEST(JobEndTest, WhenTheTargetIsMetItWaitsForTheModelAndSucceeds) {
  World world = Running(2);
  world.snapshot.progress.target_met = true;
  world.snapshot.progress.samples = 1000;
  Plan plan = world.Reconcile();
  EXPECT_TRUE(plan.status.Is(ConditionType::kTargetReached));
  EXPECT_FALSE(plan.status.finished());
  world.EndTrainer("job-0-1", 0);  // its agent is the steward and still writes the model
  plan = world.Reconcile();
  EXPECT_THAT(plan.deletes, IsEmpty());
  EXPECT_THAT(plan.creates, IsEmpty()) << "nobody is replaced after the target";
  world.EndTrainer("job-1-1", 0);
  world.pods.at("job-0-1").agent = world.pods.at("job-1-1").agent = ContainerEnd{};
  plan = world.Reconcile();
  EXPECT_TRUE(plan.status.Is(ConditionType::kSucceeded));
  EXPECT_EQ(plan.status.failures, 0u);
  EXPECT_EQ(plan.status.disruptions, 0u);
}

// Members refuse whoever comes when the job is over. It would form a view alone, and train.
TEST(JobEndTest, AWorkerThatBeginsToTrainAfterTheTargetIsNotWaitedFor) {
  World world = Running(3);
  world.pods.at("job-2-1").ready_since.reset();
  world.pods.at("job-2-1").ever_ready = false;
  world.snapshot.progress.target_met = true;
  // Those who trained before hand in their last.
  EXPECT_THAT(world.Reconcile().deletes, ElementsAre(Field(&DeletePod::name, "job-2-1")));
  // One of a short job may be seen to train when another has told of the end.
  world.Wait(Seconds(1));
  world.pods.at("job-1-1").ready_since = world.now;
  EXPECT_THAT(world.Reconcile().deletes, IsEmpty());
  world.Wait(Seconds(4));
  world.pods.at("job-1-1").ready_since = world.now;
  EXPECT_THAT(world.Reconcile().deletes, ElementsAre(Field(&DeletePod::name, "job-1-1")));
}

TEST(JobEndTest, ATrainersGoodEndIsJudgedWhenItsAgentHasSaidWhy) {  // pod-lifecycle 4.2
  World world = Running(2);
  PodFacts& pod = world.pods.at("job-0-1");
  pod.trainer = ContainerEnd{0, "Completed", "", world.now};
  Plan plan = world.Reconcile();
  EXPECT_TRUE(plan.creates.empty());
  EXPECT_EQ(plan.requeue_at, world.now + Seconds(15));
  EXPECT_EQ(plan.status.failures, 0);
  pod.agent = ContainerEnd{0, "Completed", "", world.now};
  pod.last_words = Progress{5000, 40, 2.5, 3, true};
  plan = world.Reconcile();
  EXPECT_TRUE(plan.status.target_time.has_value());
  EXPECT_EQ(plan.status.progress.samples, 5000u);
  EXPECT_EQ(plan.status.failures, 0);
  World other = Running(2);
  other.pods.at("job-0-1").trainer = ContainerEnd{0, "Completed", "", other.now};
  other.pods.at("job-0-1").agent = ContainerEnd{0, "Completed", "", other.now};
  EXPECT_EQ(other.Reconcile().status.failures, 1) << "it ended before the target";
}

struct GoodputTest : testing::Test {
  Progress Told(uint64_t samples, double rate) {
    world.snapshot.progress = {samples, 40, 2.56789, 3, false, rate};
    return world.Reconcile().status.progress;
  }
  World world = Running(2);
};

TEST_F(GoodputTest, IsWhatWasDoneOverWhatTheReplicasWouldHaveDone) {
  EXPECT_FALSE(world.snapshot.status.progress.goodput.has_value());
  world.Wait(Seconds(100));
  Progress shown = Told(900, 5);  // 2 x 5 a second for 100 s would be 1000
  EXPECT_EQ(shown.goodput, .9);
  EXPECT_EQ(shown.loss, 2.5679);
  world.Wait(Seconds(100));
  EXPECT_EQ(Told(900, 5).goodput, .9) << "no news: a status is not written for the clock's sake";
  EXPECT_EQ(Told(1800, 10).goodput, .6) << "the second stretch at its own rate: 1000 + 2000";
  world.Wait(Seconds(100));
  EXPECT_EQ(Told(3000, 0).goodput, .6) << "a worker without a rate: as before, 1000 + 2000 + 2000";
  EXPECT_EQ(Told(90'000, 0).goodput, 1);
}

TEST_F(GoodputTest, FollowsTheReplicasAndLeavesOutSuspendedTime) {
  world.Wait(Seconds(100));
  EXPECT_EQ(Told(1000, 5).goodput, 1);
  world.snapshot.job.spec.replicas = 1;
  world.Wait(Seconds(100));
  EXPECT_EQ(Told(1200, 5).goodput, .8) << "1200 of 1000 + 500";
  world.snapshot.job.spec.suspend = true;
  world.Wait(Seconds(1000));
  world.Settle();
  world.Bury();
  world.snapshot.job.spec.suspend = false;
  world.Wait(Seconds(1000));
  world.Settle();
  world.StartAll();
  world.Settle();
  world.Wait(Seconds(100));
  EXPECT_EQ(Told(1500, 5).goodput, .75) << "1500 of 1500 + 500";
}

// Under AllSucceeded a good end is the worker's share of the job: its pod goes, and no other comes.
TEST(JobEndTest, AWorkerThatSucceededIsTidiedUpAndNotReplaced) {
  World world = Running(2);
  world.snapshot.job.spec.success = SuccessCriterion::kAllSucceeded;
  world.EndTrainer("job-0-1", 0);
  const Plan plan = world.Reconcile();
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_EQ(plan.deletes[0].name, "job-0-1");
  EXPECT_EQ(plan.deletes[0].reason, reason::kEnded);
  EXPECT_TRUE(plan.creates.empty());
  world.Bury();
  EXPECT_TRUE(world.Settle().creates.empty());
  EXPECT_FALSE(world.snapshot.status.finished());
  world.EndTrainer("job-1-1", 0);
  world.Settle();
  EXPECT_EQ(world.snapshot.status.Find(ConditionType::kSucceeded)->reason, reason::kAllSucceeded);
  EXPECT_EQ(world.snapshot.status.failures + world.snapshot.status.disruptions, 0u);
}

TEST(JobEndTest, OneGoodEndIsEnoughUnderAnySucceeded) {
  World world = Running(3);
  world.snapshot.job.spec.success = SuccessCriterion::kAnySucceeded;
  EXPECT_FALSE(world.Settle().status.finished());
  world.EndTrainer("job-1-1", 0);
  EXPECT_EQ(world.Reconcile().status.Find(ConditionType::kSucceeded)->reason,
            reason::kAnySucceeded);
}

TEST(JobEndTest, AJobOfNoWorkersHasNotSucceeded) {
  World world(0);
  world.snapshot.job.spec.success = SuccessCriterion::kAllSucceeded;
  EXPECT_FALSE(world.Settle().status.finished());
}

// docs/manifest.md: Running, the default, takes the pods that still run; All takes all, None none.
TEST(JobEndTest, TheCleanPodPolicySaysWhichPodsGoAtTheEnd) {
  for (const auto& [policy, gone] : {std::pair(CleanPodPolicy::kRunning, 1),
                                     {CleanPodPolicy::kAll, 2},
                                     {CleanPodPolicy::kNone, 0}}) {
    World world = Running(2);
    world.snapshot.job.spec.run.clean_pods = policy;
    world.snapshot.job.spec.run.active_deadline = Seconds(10);
    PodFacts& ended = world.pods.at("job-0-1");
    ended.phase = PodPhase::kSucceeded;
    world.Wait(Seconds(10));
    const Plan plan = world.Reconcile();
    ASSERT_TRUE(plan.status.Is(ConditionType::kFailed));
    EXPECT_EQ(plan.deletes.size(), static_cast<size_t>(gone));
  }
}

TEST(JobEndTest, AtTheEndTheScreenSaysFinishingAndNeverDegraded) {
  World world = Running(2);
  ASSERT_EQ(StateOf(world.snapshot.status), "Running");
  for (const char* name : {"job-0-1", "job-1-1"}) {
    world.pods.at(name).trainer = ContainerEnd{0, "Completed", "", world.now};
    world.pods.at(name).ready_since.reset();
  }
  EXPECT_EQ(StateOf(world.Reconcile().status), "Running") << "nobody knows yet why they ended";
  world.pods.at("job-0-1").agent = ContainerEnd{0, "Completed", "", world.now};
  world.pods.at("job-0-1").last_words = Progress{5000, 40, 2.5, 3, true};
  const Plan plan = world.Reconcile();
  EXPECT_EQ(StateOf(plan.status), "Finishing");
  EXPECT_FALSE(plan.status.Is(ConditionType::kDegraded));
  // One that ended well before the target, for all that is known, is missing when its time is over.
  World other = Running(2);
  other.pods.at("job-0-1").trainer = ContainerEnd{0, "Completed", "", other.now};
  other.pods.at("job-0-1").ready_since.reset();
  other.Reconcile();
  other.Wait(Seconds(15));
  EXPECT_EQ(StateOf(other.Reconcile().status), "Degraded");
}

TEST(JobEndTest, AWorkerThatIsStillStartingWhenTheTargetIsMetIsNotWaitedFor) {
  World world = Running(2);
  world.TakeNode("job-1-1");
  world.Reconcile();  // job-1-2 is on its way
  world.snapshot.progress.target_met = true;
  const Plan plan = world.Reconcile();
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_EQ(plan.deletes[0].name, "job-1-2");
}

TEST(JobEndTest, AWorkerThatHangsAfterTheTargetDoesNotHoldTheJob) {
  World world = Running(2);
  world.snapshot.progress.target_met = true;
  const Plan plan = world.Reconcile();
  EXPECT_EQ(plan.requeue_at, world.now + world.options.completion_grace);
  world.now = plan.requeue_at;
  EXPECT_TRUE(world.Reconcile().status.Is(ConditionType::kSucceeded));
}

TEST(JobEndTest, DeadlinesEndAJobThatIsTooSlowToStartOrToEnd) {
  World slow(1);
  slow.snapshot.job.spec.run.start_deadline = Seconds(60);
  EXPECT_EQ(slow.Reconcile().requeue_at, slow.now + Seconds(60));
  slow.Wait(Seconds(60));
  EXPECT_EQ(slow.Reconcile().status.Find(ConditionType::kFailed)->reason,
            reason::kStartDeadlineExceeded);
  World world = Running(1);
  world.snapshot.job.spec.run.active_deadline = Seconds(100);
  world.Wait(Seconds(101));
  const Plan plan = world.Reconcile();
  EXPECT_EQ(plan.status.Find(ConditionType::kFailed)->reason, reason::kDeadlineExceeded);
  world.Reconcile();
  EXPECT_EQ(world.Alive(), 0) << "cleanPodPolicy Running";
}

// --cascade=orphan sets them free; else the garbage collector takes them (pod-lifecycle 4.15).
TEST(JobEndTest, TheWorkersOfADeletedJobAreLeftAlone) {
  World world = Running(2);
  world.snapshot.job.deleting = true;
  world.EndTrainer("job-0-1", 1);
  world.nodes.at("node-job-1-1").mark = Mark{"SpotInterruption", world.now + Seconds(9), false};
  const Plan plan = world.Reconcile();
  EXPECT_THAT(plan.deletes, IsEmpty());
  EXPECT_THAT(plan.creates, IsEmpty());
  EXPECT_THAT(plan.annotations, IsEmpty());
  EXPECT_FALSE(plan.status_changed);
  EXPECT_TRUE(plan.requeue_at.infinite());
}

TEST(JobEndTest, AnIndexThatWasScaledAwayIsNoShareOfTheJob) {
  World world = Running(4);
  world.snapshot.job.spec.success = SuccessCriterion::kAllSucceeded;
  world.EndTrainer("job-2-1", 0);
  world.EndTrainer("job-3-1", 0);
  world.Settle();
  world.Bury();
  world.snapshot.job.spec.replicas = 2;
  EXPECT_FALSE(world.Settle().status.finished()) << "workers 0 and 1 still train";
  world.EndTrainer("job-0-1", 0);
  world.EndTrainer("job-1-1", 0);
  EXPECT_TRUE(world.Reconcile().status.Is(ConditionType::kSucceeded));
}

TEST(JobEndTest, AFinishedJobGoesAfterItsTime) {
  World done = Running(1);
  done.snapshot.job.spec.run.ttl_after_finished = Seconds(5);
  done.snapshot.progress.target_met = true;
  done.EndTrainer("job-0-1", 0);
  done.pods.at("job-0-1").agent = ContainerEnd{};
  done.Reconcile();
  EXPECT_FALSE(done.Reconcile().delete_job);
  done.Wait(Seconds(5));
  EXPECT_TRUE(done.Reconcile().delete_job);
}

// Killed after it had written that it suspends, before it deleted anything; then the job resumes.
TEST(AccountingTest, WhoWasToGoAndMayStayIsCountedWhenItEnds) {
  World world = Running(2);
  world.snapshot.job.spec.suspend = true;
  world.snapshot.status = Decide(world.snapshot, world.now).status;
  world.snapshot.job.spec.suspend = false;
  world.Reconcile();
  world.EndTrainer("job-0-1", 1);
  world.Reconcile();
  EXPECT_EQ(world.snapshot.status.failures, 1u);
  EXPECT_EQ(world.snapshot.status.disruptions, 0u);
}

}  // namespace
}  // namespace crowdsurf::controller
