// When each seed is asked: at once, about a minute after an answer, ever later while it fails.
#include "coordinator-free-dht/core/routing/seeds.h"

#include <gmock/gmock.h>

namespace crowdsurf::dht {
namespace {

constexpr Time kStart = Time::FromNanoseconds(1'000'000'000);

class SeedsTest : public testing::Test {
 protected:
  SeedsTest() { config_.seeds = 3; }
  std::vector<std::string> Due(Time now) {
    std::vector<std::string> out;
    while (const auto endpoint = seeds_.NextDue(now)) out.push_back(*endpoint);
    return out;
  }
  NodeConfig config_;
  Seeds seeds_{config_, Rng(5)};
};

TEST_F(SeedsTest, EachIsDueAtOnceAndNotAskedTwiceAtATime) {
  EXPECT_TRUE(seeds_.NextDeadline().infinite());
  EXPECT_FALSE(seeds_.AwaitingFirstAnswers());
  seeds_.Add(kStart, "a");
  seeds_.Add(kStart, "b");
  EXPECT_TRUE(seeds_.AwaitingFirstAnswers());
  EXPECT_EQ(seeds_.NextDeadline(), kStart);
  EXPECT_TRUE(Due(kStart - Nanoseconds(1)).empty());
  EXPECT_THAT(Due(kStart), testing::ElementsAre("a", "b"));
  EXPECT_TRUE(Due(kStart + Seconds(100)).empty());
  EXPECT_TRUE(seeds_.NextDeadline().infinite());
  seeds_.OnAnswer(kStart, "a");
  EXPECT_TRUE(seeds_.AwaitingFirstAnswers());
  seeds_.OnFailure(kStart, "b");
  EXPECT_FALSE(seeds_.AwaitingFirstAnswers()) << "a failure settles it, too";
  seeds_.OnAnswer(kStart, "unknown");
  seeds_.OnFailure(kStart, "unknown");
  EXPECT_EQ(seeds_.size(), 2u);
}

TEST_F(SeedsTest, OneThatAnswersIsAskedAgainAfterAboutAMinuteForEver) {
  seeds_.Add(kStart, "a");
  Time now = kStart;
  Duration shortest = Duration::Infinite(), longest;
  for (int i = 0; i < 200; ++i) {
    ASSERT_THAT(Due(now), testing::ElementsAre("a"));
    seeds_.OnAnswer(now, "a");
    const Duration wait = seeds_.NextDeadline() - now;
    shortest = std::min(shortest, wait);
    longest = std::max(longest, wait);
    now = seeds_.NextDeadline();
  }
  EXPECT_GE(shortest, config_.seed_again * 0.5);
  EXPECT_LT(shortest, config_.seed_again * 0.55);
  EXPECT_LE(longest, config_.seed_again * 1.5);
  EXPECT_GT(longest, config_.seed_again * 1.45);
}

TEST_F(SeedsTest, OneThatFailsIsRetriedWithBackOffUntilItAnswers) {
  seeds_.Add(kStart, "a");
  Time now = kStart;
  double full = 0.1;  // seconds; doubles up to 30
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(Due(now), testing::ElementsAre("a"));
    seeds_.OnFailure(now, "a");
    const double wait = (seeds_.NextDeadline() - now).seconds();
    EXPECT_LE(wait, full * 1.0001) << i;
    EXPECT_GE(wait, full * 0.4999) << i;
    full = std::min(full * 2, 30.0);
    now = seeds_.NextDeadline();
  }
  Due(now);
  seeds_.OnAnswer(now, "a");
  now = seeds_.NextDeadline();
  Due(now);
  seeds_.OnFailure(now, "a");
  EXPECT_LE(seeds_.NextDeadline() - now, Milliseconds(101)) << "an answer ends the back-off";
}

TEST_F(SeedsTest, ToAddAFailingOneAgainMakesItDueAndChangesNoOther) {
  for (const char* endpoint : {"failing", "good", "asked"}) seeds_.Add(kStart, endpoint);
  Due(kStart);
  for (int i = 0; i < 9; ++i) seeds_.OnFailure(kStart, "failing");
  seeds_.OnAnswer(kStart, "good");
  const Time now = kStart + Seconds(1);
  for (const char* endpoint : {"failing", "good", "asked"}) seeds_.Add(now, endpoint);
  EXPECT_EQ(seeds_.size(), 3u);
  EXPECT_THAT(Due(now), testing::ElementsAre("failing"));
}

TEST_F(SeedsTest, TheOldestIsForgottenToMakeRoom) {
  for (const char* endpoint : {"a", "b", "c", "d"}) seeds_.Add(kStart, endpoint);
  EXPECT_EQ(seeds_.size(), 3u);
  EXPECT_THAT(Due(kStart), testing::ElementsAre("b", "c", "d"));
}

TEST_F(SeedsTest, WhenAllConnectionsMayBeGoneEverySeedIsDueSoon) {
  seeds_.Add(kStart, "good");
  seeds_.Add(kStart, "failing");
  Due(kStart);
  seeds_.OnAnswer(kStart, "good");
  for (int i = 0; i < 9; ++i) seeds_.OnFailure(kStart, "failing");
  const Time now = kStart + Seconds(1);
  seeds_.Hurry(now);
  EXPECT_GE(seeds_.NextDeadline(), now + Milliseconds(50));
  EXPECT_THAT(Due(now + Milliseconds(100)), testing::ElementsAre("good", "failing"));
  seeds_.OnFailure(now, "failing");
  EXPECT_LE(seeds_.NextDeadline(), now + Milliseconds(101)) << "and the back-off begins anew";
  seeds_.Hurry(now + Seconds(9));
  EXPECT_LE(seeds_.NextDeadline(), now + Milliseconds(101)) << "what is due earlier stays so";
}

TEST_F(SeedsTest, OneThatNeverAnsweredIsSilentAfterAWhile) {
  seeds_.Add(kStart, "answers");
  seeds_.Add(kStart, "silent");
  seeds_.Add(kStart + Seconds(10), "new");
  ASSERT_EQ(Due(kStart + Seconds(10)).size(), 3u);
  seeds_.OnAnswer(kStart + Seconds(10), "answers");
  seeds_.OnFailure(kStart + Seconds(10), "silent");
  EXPECT_TRUE(seeds_.Silent(kStart + Seeds::kSilentAfter - Nanoseconds(1)).empty());
  EXPECT_THAT(seeds_.Silent(kStart + Seeds::kSilentAfter), testing::ElementsAre("silent"));
  seeds_.OnFailure(kStart + Seconds(60), "answers");
  EXPECT_THAT(seeds_.Silent(kStart + Seconds(60)), testing::ElementsAre("silent", "new"))
      << "one that answered once is a peer that is gone";
  seeds_.OnAnswer(kStart + Seconds(60), "silent");
  EXPECT_THAT(seeds_.Silent(kStart + Seconds(60)), testing::ElementsAre("new"));
}

}  // namespace
}  // namespace crowdsurf::dht
