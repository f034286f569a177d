// When a list or a watch that has ended is begun again.
#include "operator/core/observe/watch_pace.h"

#include <gtest/gtest.h>

#include "operator/core/observe/api_errors.h"

namespace crowdsurf::controller {
namespace {

using End = WatchPace::End;

const Time kStart = Time::FromNanoseconds(1'000'000'000'000);

TEST(WatchPaceTest, AWatchThatLastedIsFollowedAtOnce) {
  WatchPace pace(Rng(1));
  Time now = kStart;
  for (int i = 0; i < 10; ++i) {
    const Time begun = now;
    now = now + Seconds(20);
    EXPECT_EQ(pace.After(End::kServed, begun, now), Duration());
  }
}

// An hour of ends that come at once, of either kind: the server is asked some hundred times.
TEST(WatchPaceTest, EndsThatComeAtOnceNeverLoopHot) {
  for (const End end : {End::kServed, End::kFailed}) {
    WatchPace pace(Rng(1));
    int begun = 0;
    for (Time now = kStart; now < kStart + Seconds(3600); ++begun) {
      now = now + Milliseconds(1);
      const Duration wait = pace.After(end, now - Milliseconds(1), now);
      EXPECT_GE(wait, begun == 0 ? Milliseconds(400) : Milliseconds(800));
      EXPECT_LE(wait, Seconds(30));
      now = now + wait;
    }
    EXPECT_LE(begun, 3600 / 15 + 10);
  }
}

// However long the server was away: it is asked within 2 s of its return, and one failure among
// answers waits as little as ever.
TEST(WatchPaceTest, AServerThatWasAwayIsAskedSoonAfterItsReturn) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    WatchPace pace{Rng(seed)};
    Time now = kStart;
    const Time back = kStart + Seconds(20);
    while (now < back) now = now + pace.After(End::kUnanswered, now, now);
    EXPECT_LE(now - back, Seconds(2)) << "seed " << seed;
    EXPECT_LE(pace.After(End::kFailed, now, now), Milliseconds(800)) << "seed " << seed;
  }
}

TEST(WatchPaceTest, TwoMinutesThatWorkedForgetWhatFailedBefore) {
  WatchPace pace(Rng(1));
  Time now = kStart;
  for (int i = 0; i < 10; ++i) now = now + pace.After(End::kFailed, now, now);
  EXPECT_GE(pace.After(End::kFailed, now, now), Seconds(15));
  const Time later = now + Seconds(200);
  EXPECT_LE(pace.After(End::kFailed, now, later), Milliseconds(800));
}

TEST(ApiErrorsTest, APauseIsAskedForByWhoIsBusy) {
  EXPECT_EQ(PauseAskedFor(429, ""), Seconds(1));
  EXPECT_EQ(PauseAskedFor(429, "3"), Seconds(3));
  EXPECT_EQ(PauseAskedFor(429, "0"), kMinPause);
  EXPECT_EQ(PauseAskedFor(429, "100000000000"), kMaxPause);
  EXPECT_EQ(PauseAskedFor(429, "-5"), Seconds(1));
  EXPECT_EQ(PauseAskedFor(429, "Wed, 21 Oct 2026 07:28:00 GMT"), Seconds(1));
  EXPECT_EQ(PauseAskedFor(503, "2"), Seconds(2));
  EXPECT_EQ(PauseAskedFor(500, ""), std::nullopt) << "whether it was done is not known";
  EXPECT_EQ(PauseAskedFor(409, "2"), std::nullopt);
}

TEST(ApiErrorsTest, ABusyServerIsNoQuota) {
  EXPECT_TRUE(absl::IsUnavailable(ApiError(429, R"({"message": "too many"})", "POST /x")));
  const Status status = ApiError(500, "\x80 no JSON", "POST /x");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_TRUE(absl::IsAlreadyExists(ApiError(409, R"({"reason": "AlreadyExists"})", "POST /x")));
  EXPECT_TRUE(absl::IsAborted(ApiError(409, R"({"reason": 7})", "PUT /x")));
}

}  // namespace
}  // namespace crowdsurf::controller
