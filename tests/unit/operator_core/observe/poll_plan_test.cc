#include "operator/core/observe/poll_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace crowdsurf::controller {
namespace {

class PollPlanTest : public testing::Test {
 protected:
  // Who is asked now, one after the other; each is answered at once.
  std::string Asked(PollEnd how = PollEnd::kAnswered) {
    std::string names;
    while (const auto poll = plan_.Next(now_)) {
      names += poll->name;
      struck_ += plan_.Ended(*poll, how, now_);
    }
    return names;
  }
  void Wait(Duration time) { now_ = now_ + time; }

  Time now_ = Time::FromNanoseconds(1);
  int struck_ = 0;
  PollPlan plan_{Seconds(10), Duration()};
};

TEST_F(PollPlanTest, EverybodyIsAskedOnceAnIntervalTheLongestWaitingFirst) {
  plan_.SetTarget("b", "1", now_);
  Wait(Seconds(1));
  plan_.SetTarget("a", "2", now_);
  EXPECT_EQ(Asked(), "ba");
  EXPECT_EQ(Asked(), "");
  EXPECT_EQ(plan_.NextDue(), now_ + Seconds(10));
  plan_.SetTarget("a", "2", now_);
  EXPECT_EQ(Asked(), "") << "the same address is no news";
  plan_.SetTarget("a", "3", now_);
  EXPECT_EQ(Asked(), "a");
  plan_.Forget("a");
  Wait(Seconds(10));
  EXPECT_EQ(Asked(), "b");
}

TEST_F(PollPlanTest, SixteenAreUnderWayAtMost) {
  for (int i = 0; i < 20; ++i) plan_.SetTarget("w" + std::to_string(i), "1", now_);
  std::vector<PollPlan::Poll> polls;
  while (const auto poll = plan_.Next(now_)) polls.push_back(*poll);
  EXPECT_EQ(polls.size(), PollPlan::kAtOnce);
  EXPECT_TRUE(plan_.NextDue().infinite());
  Wait(Seconds(100));
  EXPECT_FALSE(plan_.Next(now_).has_value());
  EXPECT_FALSE(plan_.Ended(polls[0], PollEnd::kAnswered, now_));
  EXPECT_TRUE(plan_.Next(now_).has_value());
}

TEST_F(PollPlanTest, NoTwoBeginWithinTheSpacing) {
  plan_ = PollPlan(Seconds(10), Milliseconds(50));
  plan_.SetTarget("a", "1", now_);
  plan_.SetTarget("b", "1", now_);
  EXPECT_EQ(Asked(), "a");
  EXPECT_EQ(plan_.NextDue(), now_ + Milliseconds(50));
  Wait(Milliseconds(50));
  EXPECT_EQ(Asked(), "b");
}

TEST_F(PollPlanTest, WhoIsSlowThreeTimesInARowIsLeftAloneForSixIntervals) {
  plan_.SetTarget("a", "1", now_);
  for (int i = 0; i < 2; ++i, Wait(Seconds(10))) EXPECT_EQ(Asked(PollEnd::kSlow), "a");
  EXPECT_EQ(Asked(PollEnd::kAnswered), "a") << "it begins anew";
  for (int i = 0; i < 3; ++i) {
    Wait(Seconds(10));
    EXPECT_EQ(struck_, 0);
    EXPECT_EQ(Asked(PollEnd::kSlow), "a");
  }
  EXPECT_EQ(struck_, 1);
  Wait(Seconds(59));
  EXPECT_EQ(Asked(), "");
  Wait(Seconds(1));
  EXPECT_EQ(Asked(), "a");
  for (int i = 0; i < 9; ++i) {
    Wait(Seconds(10));
    EXPECT_EQ(Asked(PollEnd::kNobody), "a") << "one that starts is no burden";
  }
}

TEST_F(PollPlanTest, ALateAnswerOfAnOldAddressSaysNothingAboutTheNewOne) {
  plan_.SetTarget("a", "1", now_);
  const auto old = plan_.Next(now_);
  plan_.SetTarget("a", "2", now_);
  const auto poll = plan_.Next(now_);
  ASSERT_TRUE(poll.has_value());
  EXPECT_EQ(poll->address, "2");
  EXPECT_FALSE(plan_.Ended(*old, PollEnd::kSlow, now_));
  EXPECT_TRUE(plan_.NextDue().infinite()) << "the new one is under way";
  plan_.Forget("a");
  EXPECT_FALSE(plan_.Ended(*poll, PollEnd::kSlow, now_));
}

}  // namespace
}  // namespace crowdsurf::controller
