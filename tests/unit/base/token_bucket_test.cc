#include "base/token_bucket.h"

#include <gtest/gtest.h>

namespace crowdsurf {
namespace {

TEST(TokenBucketTest, ABurstIsGivenAtOnceAndThenSoManyASecond) {
  TokenBucket bucket(3, 0.5);
  Time now = Time::FromNanoseconds(1'000'000'000);
  const auto taken = [&] {
    int count = 0;
    while (bucket.Take(now)) ++count;
    return count;
  };
  EXPECT_TRUE(bucket.full(now));
  EXPECT_EQ(taken(), 3);
  now = now + Milliseconds(1999);
  EXPECT_EQ(taken(), 0);
  now = now + Milliseconds(1);
  EXPECT_EQ(taken(), 1);
  now = now - Seconds(100);
  EXPECT_EQ(taken(), 0) << "a clock that goes back";
  now = now + Seconds(1e6);
  EXPECT_FALSE(bucket.full(now - Seconds(1e6 - 1)));
  EXPECT_TRUE(bucket.full(now));
  EXPECT_EQ(taken(), 3) << "no more than the burst";
}

}  // namespace
}  // namespace crowdsurf
