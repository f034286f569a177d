// What a job's status says when its workers train in two lineages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/operator_core/decide/world.h"

namespace crowdsurf::controller {
namespace {

std::vector<std::string> Reasons(const Plan& plan) {
  std::vector<std::string> reasons;
  for (const Event& event : plan.events) reasons.emplace_back(event.reason);
  return reasons;
}

TEST(LineagesTest, TwoAreAConditionWithAnEventAndSoIsTheirEnd) {
  World world = Running(3);
  world.snapshot.progress.lineages = 1;
  Plan plan = world.Reconcile();
  EXPECT_EQ(plan.status.Find(ConditionType::kTwoLineages), nullptr) << "most jobs never have it";
  world.snapshot.progress.lineages = 2;
  plan = world.Reconcile();
  ASSERT_TRUE(plan.status.Is(ConditionType::kTwoLineages));
  EXPECT_THAT(plan.status.Find(ConditionType::kTwoLineages)->message,
              testing::HasSubstr("train in 2 lines"));
  EXPECT_THAT(Reasons(plan), testing::Contains("TwoLineages"));
  plan = world.Reconcile();
  EXPECT_THAT(Reasons(plan), testing::Not(testing::Contains("TwoLineages"))) << "said once";
  // An operator that has just started has asked nobody yet.
  world.snapshot.progress.lineages = 0;
  EXPECT_TRUE(world.Reconcile().status.Is(ConditionType::kTwoLineages));
  world.snapshot.progress.lineages = 1;
  plan = world.Reconcile();
  ASSERT_NE(plan.status.Find(ConditionType::kTwoLineages), nullptr);
  EXPECT_FALSE(plan.status.Is(ConditionType::kTwoLineages));
  EXPECT_THAT(Reasons(plan), testing::Contains("OneLineage"));
}

TEST(LineagesTest, AJobThatIsOverHasNone) {
  World world = Running(2);
  world.snapshot.progress.lineages = 2;
  EXPECT_TRUE(world.Reconcile().status.Is(ConditionType::kTwoLineages));
  world.snapshot.job.spec.suspend = true;
  const Plan plan = world.Reconcile();
  EXPECT_FALSE(plan.status.Is(ConditionType::kTwoLineages));
  EXPECT_THAT(Reasons(plan), testing::Not(testing::Contains("OneLineage")));
}

}  // namespace
}  // namespace crowdsurf::controller
