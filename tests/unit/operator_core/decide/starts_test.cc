// Workers that are there and do not train: the job says since when and why.
#include <gmock/gmock.h>

#include "operator/core/job/rfc3339.h"
#include "tests/unit/operator_core/decide/world.h"

namespace crowdsurf::controller {
namespace {

using ::testing::HasSubstr;

const Condition& Degraded(const World& world) {
  return *world.snapshot.status.Find(ConditionType::kDegraded);
}

// Its trainer's container runs, and no step was made yet.
void Begin(World& world, const std::string& name) {
  world.Start(name);
  PodFacts& pod = world.pods.at(name);
  pod.ready_since.reset();
  pod.started = world.now;
}

TEST(StartsTest, AWorkerWithoutAStepHasItsAgentsCauseAfterHalfAMinute) {
  for (const auto& [wait, why, words] :
       {std::tuple("signer", reason::kSignerNotReached, "signer, port 9443"),
        {"trainer", reason::kTrainerNotConnected, "no trainer has connected"},
        {"step", reason::kNoStep, "has connected and has made no step"},
        {"", reason::kNoStep, "its agent was not heard"}}) {
    World world(2);
    world.Reconcile();
    Begin(world, "job-0-1");
    const std::string since = FormatInstant(world.now);
    EXPECT_EQ(world.Settle().requeue_at, world.now + Seconds(30));
    EXPECT_EQ(Degraded(world).reason, reason::kWorkersStarting) << "it may take a while";
    world.Wait(Seconds(29));
    EXPECT_EQ(world.Settle().requeue_at, world.now + Seconds(1)) << "no watch tells of it";
    world.Wait(Seconds(1));
    world.pods.at("job-0-1").wait = wait;
    const Plan plan = world.Reconcile();
    EXPECT_EQ(Degraded(world).reason, why);
    EXPECT_THAT(Degraded(world).message, HasSubstr("job-0-1: since " + since));
    EXPECT_THAT(Degraded(world).message, HasSubstr(words));
    ASSERT_EQ(plan.events.size(), 1u);
    EXPECT_EQ(plan.events[0].reason, why);
    world.Wait(Seconds(600));
    const Plan later = world.Reconcile();
    EXPECT_TRUE(later.events.empty()) << "said once";
    EXPECT_FALSE(later.status_changed) << "a status is not written for the clock's sake";
    world.Start("job-0-1");
    world.Start("job-1-1");
    world.Settle();
    EXPECT_FALSE(Degraded(world).on);
  }
}

TEST(StartsTest, AnInitContainerThatRunsForLongIsNamed) {
  World world(1);
  world.Reconcile();
  PodFacts& pod = world.pods.at("job-0-1");
  pod.node = "n";
  world.nodes["n"];
  pod.init_name = "fetch";
  pod.init_since = world.now;
  world.Wait(Seconds(30));
  world.Reconcile();
  EXPECT_EQ(Degraded(world).reason, reason::kInitContainer);
  EXPECT_THAT(Degraded(world).message, HasSubstr("init container fetch has not ended"));
}

TEST(StartsTest, WhatKubeletSaysComesFirst) {
  World world(1);
  world.Reconcile();
  Begin(world, "job-0-1");
  world.Wait(Seconds(60));
  world.pods.at("job-0-1").waiting_reason = reason::kImagePull;
  world.pods.at("job-0-1").waiting_message = "no such image";
  world.Reconcile();
  EXPECT_EQ(Degraded(world).reason, reason::kImagePull);
}

TEST(StartsTest, AWorkerThatHasTrainedBeforeIsNotSaidToHaveMadeNoStep) {
  World world = Running(2);
  world.pods.at("job-0-1").ready_since.reset();  // between two seats
  world.Wait(Seconds(60));
  world.Reconcile();
  EXPECT_EQ(Degraded(world).reason, reason::kReplacing);
}

TEST(StartsTest, AJobThatNeverStartsEndsAfterADayAndSaysWhy) {
  World world(1);
  world.Reconcile();
  Begin(world, "job-0-1");
  world.pods.at("job-0-1").wait = "trainer";
  world.Wait(Seconds(86'399));
  EXPECT_FALSE(world.Reconcile().status.finished());
  world.snapshot.job.spec.suspend = true;
  world.Reconcile();
  world.Wait(Seconds(86'400));
  world.snapshot.job.spec.suspend = false;
  EXPECT_FALSE(world.Reconcile().status.finished()) << "suspended time does not count";
  world.Wait(Seconds(86'400));
  world.Reconcile();
  const Condition* failed = world.snapshot.status.Find(ConditionType::kFailed);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->reason, reason::kStartDeadlineExceeded);
}

TEST(StartsTest, TheDeadlinesMessageHasTheCause) {
  World world(1);
  world.snapshot.job.spec.run.start_deadline = Seconds(60);
  world.Reconcile();
  Begin(world, "job-0-1");
  world.pods.at("job-0-1").wait = "trainer";
  world.Wait(Seconds(40));
  world.Reconcile();
  world.Wait(Seconds(20));
  world.Reconcile();
  const Condition* failed = world.snapshot.status.Find(ConditionType::kFailed);
  ASSERT_NE(failed, nullptr);
  EXPECT_THAT(failed->message, HasSubstr("no trainer has connected"));
}

}  // namespace
}  // namespace crowdsurf::controller
