// What one peer may ask for: a token bucket, its rate and its burst counted by hand.
#include "coordinator-free-dht/core/routing/source_limiter.h"

#include <gtest/gtest.h>

namespace crowdsurf::dht {
namespace {

Time At(double seconds) { return Time::FromNanoseconds(1'000'000'000) + Seconds(seconds); }

PeerId Peer(uint8_t number) {
  std::array<uint8_t, 32> bytes{};
  bytes[0] = number;
  return PeerId(bytes);
}

NodeConfig Small() {
  NodeConfig config;
  config.source_rate = 10;
  config.source_burst = 5;
  config.sources = 3;
  return config;
}

TEST(SourceLimiterTest, ABurstThenTheRateThenABurstAgain) {
  const NodeConfig config = Small();
  SourceLimiter limiter(config);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(limiter.Take(At(0), Peer(1), 1));
  EXPECT_FALSE(limiter.Take(At(0), Peer(1), 1));
  EXPECT_FALSE(limiter.Take(At(0.05), Peer(1), 1)) << "half a token";
  EXPECT_TRUE(limiter.Take(At(0.11), Peer(1), 1));
  int taken = 0;
  for (int ms = 120; ms < 10'120; ++ms) taken += limiter.Take(At(ms * 1e-3), Peer(1), 1);
  EXPECT_NEAR(taken, 100, 1) << "ten a second for ten seconds";
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(limiter.Take(At(20), Peer(1), 1));
  EXPECT_FALSE(limiter.Take(At(20), Peer(1), 1)) << "rest adds up to the burst, not beyond";
}

TEST(SourceLimiterTest, SourcesDoNotShareAndWhatCostsMoreTakesMore) {
  const NodeConfig config = Small();
  SourceLimiter limiter(config);
  EXPECT_TRUE(limiter.Take(At(0), Peer(1), 5));
  EXPECT_FALSE(limiter.Take(At(0), Peer(1), 1));
  EXPECT_TRUE(limiter.Take(At(0), Peer(2), 1));
  EXPECT_FALSE(limiter.Take(At(0), Peer(2), 6)) << "never, whatever the rest";
  EXPECT_TRUE(limiter.Take(At(0), Peer(2), 4)) << "a refusal takes nothing";
}

TEST(SourceLimiterTest, AFineIsADebtThatWaitingPays) {
  const NodeConfig config = Small();
  SourceLimiter limiter(config);
  EXPECT_TRUE(limiter.Take(At(0), Peer(1), 1));
  limiter.Fine(At(0), Peer(1), 14);  // 10 below nothing
  EXPECT_FALSE(limiter.Take(At(1.05), Peer(1), 1));
  EXPECT_TRUE(limiter.Take(At(1.11), Peer(1), 1));
  limiter.Fine(At(0), Peer(2), 5);  // of whom nothing is known
  EXPECT_TRUE(limiter.Take(At(0), Peer(2), 5));
}

TEST(SourceLimiterTest, BucketsAreBoundedAndTheBusyOnesAreKept) {
  const NodeConfig config = Small();
  SourceLimiter limiter(config);
  EXPECT_TRUE(limiter.Take(At(0), Peer(1), 5));
  EXPECT_TRUE(limiter.Take(At(0.1), Peer(2), 5));
  EXPECT_TRUE(limiter.Take(At(0.2), Peer(3), 5));
  EXPECT_TRUE(limiter.Take(At(0.2), Peer(4), 5)) << "peer 1 was idle longest";
  EXPECT_EQ(limiter.size(), 3u);
  EXPECT_FALSE(limiter.Take(At(0.2), Peer(3), 1));
  EXPECT_TRUE(limiter.Take(At(100), Peer(5), 1));
  EXPECT_EQ(limiter.size(), 1u) << "the others are full again: nothing is to be remembered";
}

}  // namespace
}  // namespace crowdsurf::dht
