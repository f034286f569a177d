// Decide on trainers that fail: the back-off, what counts, and the rules of a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/core/decide/decide.h"
#include "tests/unit/operator_core/decide/world.h"

namespace crowdsurf::controller {
namespace {

using ::testing::EndsWith;
using ::testing::IsEmpty;

constexpr char kTraceback[] =
    "Traceback (most recent call last):\n  File \"a.py\", line 1\n\x1b[1mOSError\x1b[0m: no file\n";

TEST(DecideTest, ACrashingTrainerBacksOffThenFailsTheJobWithItsLastOutput) {
  World world(1);
  world.snapshot.job.spec.run.backoff_limit = 3;
  std::vector<double> waits;
  Plan plan = world.Reconcile();
  for (int attempt = 0; attempt < 10 && !plan.status.finished(); ++attempt) {
    ASSERT_EQ(plan.creates.size(), 1u) << attempt;
    const std::string name = plan.creates[0].name;
    world.Start(name);
    world.Wait(Milliseconds(100));
    world.EndTrainer(name, 3, kTraceback);
    plan = world.Reconcile();
    if (plan.status.finished()) break;
    EXPECT_THAT(plan.creates, IsEmpty()) << "not before its back-off";
    EXPECT_EQ(plan.status.Find(ConditionType::kDegraded)->reason, reason::kBackingOff);
    EXPECT_THAT(plan.status.Find(ConditionType::kDegraded)->message, EndsWith("OSError: no file"));
    EXPECT_THAT(plan.events[0].message, EndsWith("ended with exit code 3: OSError: no file"));
    waits.push_back((plan.requeue_at - world.now).seconds());
    world.Bury();
    world.now = plan.requeue_at;
    plan = world.Reconcile();
  }
  ASSERT_EQ(waits.size(), 3u);
  for (size_t i = 0; i < waits.size(); ++i) {  // 10, 20, 40 s, up to a fifth less by jitter
    EXPECT_LE(waits[i], 10.0 * (1 << i));
    EXPECT_GE(waits[i], 8.0 * (1 << i));
  }
  const Condition* failed = plan.status.Find(ConditionType::kFailed);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->reason, reason::kBackoffLimitExceeded);
  EXPECT_THAT(failed->message, EndsWith("exit code 3: OSError: no file"));
  EXPECT_EQ(plan.status.last_failure->output,
            "Traceback (most recent call last):\n  File \"a.py\", line 1\nOSError: no file\n");
  EXPECT_EQ(plan.status.failures, 4u);
  EXPECT_EQ(plan.status.disruptions, 0u);
}

TEST(DecideTest, WorkersThatCrashTogetherAreOneTry) {
  World world = Running(8);
  for (int i = 0; i < 8; ++i) world.EndTrainer("job-" + std::to_string(i) + "-1", 1);
  const Plan plan = world.Reconcile();
  EXPECT_FALSE(plan.status.finished());
  EXPECT_EQ(plan.status.failures, 8u);
  EXPECT_EQ(plan.status.counted_failures.size(), 1u);
}

TEST(DecideTest, FailuresOutsideTheWindowAreForgotten) {
  World world(1);
  world.snapshot.job.spec.run.backoff_limit = 0;
  world.snapshot.status.counted_failures = {world.now - Seconds(3601)};
  const Plan plan = world.Reconcile();
  EXPECT_THAT(plan.status.counted_failures, IsEmpty());
  EXPECT_FALSE(plan.status.finished());
}

TEST(DecideTest, ARuleMayFailTheJobAtOnceOrKeepItFromCounting) {
  World world = Running(2);
  world.snapshot.job.spec.failure_rules = {{"data lost", {42}, true, {}, FailureAction::kFailJob},
                                           {"flaky", {7}, true, {}, FailureAction::kIgnore}};
  world.snapshot.job.spec.run.backoff_limit = 0;
  world.EndTrainer("job-0-1", 7);
  EXPECT_FALSE(world.Reconcile().status.finished());
  world.EndTrainer("job-1-1", 42);
  const Plan plan = world.Reconcile();
  EXPECT_EQ(plan.status.Find(ConditionType::kFailed)->reason, reason::kFailurePolicy);
}

}  // namespace
}  // namespace crowdsurf::controller
