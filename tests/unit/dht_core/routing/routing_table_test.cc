// Distances bit by bit, the nearest against brute force, round trips against the estimator of RFC
// 6298. Also who keeps a place in a full bucket.
#include "coordinator-free-dht/core/routing/routing_table.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"

namespace crowdsurf::dht {
namespace {

constexpr Time kStart = Time::FromNanoseconds(1'000'000'000);

PeerId RandomPeer(Rng& rng) {
  std::array<uint8_t, 32> bytes;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return PeerId(bytes);
}
// Shares exactly `bits` leading bits with an id of zeros.
PeerId PeerInBucket(int bits, Rng& rng) {
  std::array<uint8_t, 32> bytes = RandomPeer(rng).bytes();
  for (int bit = 0; bit <= bits; ++bit) {
    const auto mask = static_cast<uint8_t>(0x80 >> (bit % 8));
    uint8_t& byte = bytes[static_cast<size_t>(bit / 8)];
    byte = static_cast<uint8_t>(bit == bits ? byte | mask : byte & ~mask);
  }
  return PeerId(bytes);
}
Contact At(const PeerId& id) { return {id, id.brief() + ":1"}; }

class RoutingTableTest : public testing::Test {
 protected:
  RoutingTable::Heard Hear(const PeerId& id, Time now = kStart) {
    return table_.OnReply(now, At(id), Milliseconds(1));
  }
  NodeConfig config_;
  RoutingTable table_{PeerId(), config_};  // our own id is zero
  Rng rng_{3};
};

TEST(KeyTest, TheDistanceIsAMetricAndTellsAllPointsApart) {
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const Key a = PointOf(RandomPeer(rng));
    const Key b = PointOf(RandomPeer(rng));
    const Key c = PointOf(RandomPeer(rng));
    EXPECT_EQ(DistanceBetween(a, b), DistanceBetween(b, a));
    EXPECT_TRUE(DistanceBetween(a, a).none());
    EXPECT_FALSE(DistanceBetween(a, b).none());
    // d(a,b) xor d(b,c) = d(a,c), from which the triangle inequality follows.
    EXPECT_EQ(
        DistanceBetween(Key(DistanceBetween(a, b).bytes()), Key(DistanceBetween(b, c).bytes())),
        DistanceBetween(a, c));
    // The common prefix is the number of leading zeros of the distance, counted bit by bit.
    int zeros = 0;
    while (zeros < 256 && ((a.bytes()[static_cast<size_t>(zeros / 8)] ^
                            b.bytes()[static_cast<size_t>(zeros / 8)]) >>
                               (7 - zeros % 8) &
                           1) == 0) {
      ++zeros;
    }
    EXPECT_EQ(CommonPrefix(a, b), zeros);
  }
  EXPECT_EQ(CommonPrefix(KeyOf("x"), KeyOf("x")), 256);
}

TEST_F(RoutingTableTest, NearestAgreesWithBruteForce) {
  std::vector<PeerId> known;
  for (int i = 0; i < 500; ++i) {
    const PeerId id = RandomPeer(rng_);
    if (Hear(id).added) known.push_back(id);
  }
  EXPECT_EQ(table_.size(), known.size());
  for (int i = 0; i < 100; ++i) {
    const Key target = PointOf(RandomPeer(rng_));
    std::sort(known.begin(), known.end(),
              [&](const PeerId& a, const PeerId& b) { return Closer(target, a, b); });
    const auto nearest = table_.Nearest(target, 20);
    ASSERT_EQ(nearest.size(), 20u);
    for (size_t j = 0; j < 20; ++j) EXPECT_EQ(nearest[j].id, known[j]);
  }
}

TEST_F(RoutingTableTest, AFullBucketKeepsItsAnsweringPeersAndNewcomersWait) {
  // Nearer peers first, or the bucket would hold the k nearest, which are always welcome.
  for (size_t i = 0; i < config_.k; ++i) Hear(PeerInBucket(10, rng_));
  std::vector<PeerId> first;
  for (size_t i = 0; i < config_.k; ++i) {
    first.push_back(PeerInBucket(0, rng_));
    EXPECT_TRUE(Hear(first.back()).added);
  }
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(Hear(PeerInBucket(0, rng_)).added);
  for (const PeerId& id : first) EXPECT_TRUE(table_.Contains(id));
  EXPECT_EQ(table_.size(), 2 * config_.k);
  EXPECT_LT(table_.MemoryBytes(), 64u * 1024);  // the wait list is bounded
}

TEST_F(RoutingTableTest, TheLongestSilentPeerOfAFullBucketIsToBePingedAndGoesIfItFails) {
  for (size_t i = 0; i < config_.k; ++i) Hear(PeerInBucket(10, rng_));
  const PeerId oldest = PeerInBucket(0, rng_);
  Hear(oldest);
  const Time later = kStart + config_.quiet_before_ping + Seconds(1);
  for (size_t i = 1; i < config_.k; ++i) Hear(PeerInBucket(0, rng_), later);
  const PeerId newcomer = PeerInBucket(0, rng_);
  const auto heard = Hear(newcomer, later);
  EXPECT_FALSE(heard.added);
  ASSERT_TRUE(heard.ping.has_value());
  EXPECT_EQ(heard.ping->id, oldest);
  EXPECT_FALSE(table_.OnFailure(oldest));  // once is an accident
  EXPECT_TRUE(table_.TakePromoted().empty());
  EXPECT_TRUE(table_.OnFailure(oldest));
  EXPECT_FALSE(table_.Contains(oldest));
  EXPECT_TRUE(table_.Contains(newcomer));
  EXPECT_EQ(table_.TakePromoted(), std::vector<PeerId>{newcomer}) << "is to be asked if it lives";
  EXPECT_TRUE(table_.TakePromoted().empty());
}

TEST_F(RoutingTableTest, TheKNearestToOurselvesAreKeptWhateverTheirBucket) {
  // All in one bucket: a plain table would stop at k of them, whichever came first.
  std::vector<PeerId> all;
  for (int i = 0; i < 200; ++i) {
    all.push_back(PeerInBucket(3, rng_));
    Hear(all.back());
  }
  std::sort(all.begin(), all.end(),
            [](const PeerId& a, const PeerId& b) { return Closer(Key(), a, b); });
  for (size_t i = 0; i < config_.k; ++i) EXPECT_TRUE(table_.Contains(all[i])) << i;
}

TEST_F(RoutingTableTest, RequestsAloneDoNotEnterAPeer) {
  const PeerId id = RandomPeer(rng_);
  EXPECT_TRUE(table_.OnRequest(kStart, At(id)));
  EXPECT_FALSE(table_.Contains(id));
  EXPECT_FALSE(table_.OnRequest(kStart, At(PeerId())));  // ourselves
}

TEST_F(RoutingTableTest, SlowFollowsThePeersOwnRoundTrips) {
  const PeerId quick = PeerInBucket(1, rng_);
  const PeerId distant = PeerInBucket(2, rng_);
  for (int i = 0; i < 100; ++i) {
    const auto jitter = static_cast<int64_t>(rng_.Uniform(2000));
    table_.OnReply(kStart, At(quick), Microseconds(500 + jitter / 10));
    table_.OnReply(kStart, At(distant), Microseconds(80'000 + jitter));
  }
  EXPECT_EQ(table_.SlowAfter(quick), config_.min_rtt);
  EXPECT_GT(table_.SlowAfter(distant), Milliseconds(80));
  EXPECT_LT(table_.SlowAfter(distant), Milliseconds(85));
  // Of a stranger: as long as these two took to answer for the first time.
  EXPECT_GT(table_.SlowAfter(RandomPeer(rng_)), Milliseconds(40));
  EXPECT_EQ(RoutingTable(PeerId(), config_).SlowAfter(quick), config_.first_rtt);
}

TEST(RoundTripsTest, TheEstimateCoversAboutNinetyFiveOfAHundredNormalRoundTrips) {
  Rng rng(11);
  RoundTrips estimate;
  for (int i = 0; i < 200; ++i) estimate.Add(Seconds(0.050 + 0.005 * rng.Normal()));
  int covered = 0;
  constexpr int kTries = 20'000;
  for (int i = 0; i < kTries; ++i) {
    const Duration rtt = Seconds(0.050 + 0.005 * rng.Normal());
    covered += rtt <= estimate.Percentile95();
    estimate.Add(rtt);
  }
  EXPECT_NEAR(100.0 * covered / kTries, 95, 3);
}

TEST(RoundTripsTest, ItIsTheEstimatorOfTcp) {
  // Jacobson 1988, as RFC 6298 has it, with two deviations instead of four.
  RoundTrips estimate;
  EXPECT_TRUE(estimate.empty());
  double mean = 0, deviation = 0;
  Rng rng(12);
  for (int i = 0; i < 50; ++i) {
    const double sample = 0.010 + 0.090 * rng.UniformDouble();
    if (i == 0) {
      mean = sample;
      deviation = sample / 2;
    } else {
      deviation = 0.75 * deviation + 0.25 * std::abs(mean - sample);
      mean = 0.875 * mean + 0.125 * sample;
    }
    estimate.Add(Seconds(sample));
    EXPECT_FALSE(estimate.empty());
    EXPECT_NEAR(estimate.Percentile95().seconds(), mean + 2 * deviation, 1e-6) << i;
  }
}

TEST_F(RoutingTableTest, SlowIsNeverBelowNorAboveItsBounds) {
  const PeerId peer = PeerInBucket(1, rng_);
  table_.OnReply(kStart, At(peer), Microseconds(1));
  EXPECT_EQ(table_.SlowAfter(PeerInBucket(2, rng_)), config_.min_first) << "of a stranger";
  EXPECT_EQ(table_.SlowAfter(peer), config_.min_rtt);
  const PeerId far = PeerInBucket(3, rng_);
  table_.OnReply(kStart, At(far), Seconds(30));
  EXPECT_EQ(table_.SlowAfter(far), config_.max_rtt);
}

TEST_F(RoutingTableTest, AContactSurvivesAsManyFailuresInARowAsAreAllowed) {
  const PeerId id = PeerInBucket(0, rng_);
  Hear(id);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < config_.failures_allowed; ++i) EXPECT_FALSE(table_.OnFailure(id));
    if (round == 0) Hear(id);  // an answer: they are not in a row
  }
  EXPECT_TRUE(table_.Contains(id));
  EXPECT_TRUE(table_.OnFailure(id));
  EXPECT_FALSE(table_.Contains(id));
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_EQ(table_.DeepestBucket(), -1);
  EXPECT_FALSE(table_.OnFailure(id)) << "who is not there cannot fail";
  EXPECT_FALSE(table_.Remove(id));
}

TEST_F(RoutingTableTest, AContactIsKnownByItsNewestAddress) {
  const PeerId id = PeerInBucket(0, rng_);
  Hear(id);
  EXPECT_FALSE(table_.OnRequest(kStart, {id, "by-request:1"})) << "it is known";
  EXPECT_EQ(table_.Find(id)->endpoint, "by-request:1");
  table_.OnReply(kStart, {id, "by-reply:1"}, Milliseconds(1));
  EXPECT_EQ(table_.Find(id)->endpoint, "by-reply:1");
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_FALSE(Hear(PeerId()).added) << "ourselves";
  EXPECT_EQ(table_.size(), 1u);
}

class FullBucketTest : public RoutingTableTest {
 protected:
  // k nearer ones, so that the far bucket is an ordinary one, and k contacts in that.
  FullBucketTest() {
    for (size_t i = 0; i < config_.k; ++i) Hear(PeerInBucket(10, rng_));
    for (size_t i = 0; i < config_.k; ++i) far_.push_back(PeerInBucket(0, rng_));
    for (const PeerId& id : far_) Hear(id);
  }
  std::vector<PeerId> far_;  // longest silent first
};

TEST_F(FullBucketTest, SilenceCountsFromTheLastSignOfLife) {
  const Time quiet = kStart + config_.quiet_before_ping;
  EXPECT_FALSE(Hear(PeerInBucket(0, rng_), quiet - Nanoseconds(1)).ping);
  EXPECT_EQ(Hear(PeerInBucket(0, rng_), quiet).ping->id, far_[0]);
  // A request is a sign of life, too.
  EXPECT_FALSE(table_.OnRequest(quiet, At(far_[0])));
  EXPECT_EQ(Hear(PeerInBucket(0, rng_), quiet).ping->id, far_[1]);
  Hear(far_[1], quiet);
  EXPECT_EQ(Hear(PeerInBucket(0, rng_), quiet).ping->id, far_[2]);
  EXPECT_FALSE(table_.OnRequest(quiet, At(PeerInBucket(0, rng_)))) << "no room for a stranger";
  EXPECT_TRUE(table_.OnRequest(quiet, At(PeerInBucket(12, rng_)))) << "unless it is near";
}

TEST_F(FullBucketTest, TheNewestThatWaitComeInFirst) {
  std::vector<PeerId> waiting;
  for (size_t i = 0; i < config_.replacements + 3; ++i) {
    waiting.push_back(PeerInBucket(0, rng_));
    Hear(waiting.back());
  }
  Hear(waiting[waiting.size() - 2]);  // the newest now
  EXPECT_FALSE(table_.Remove(waiting.back())) << "it only waited";
  EXPECT_TRUE(table_.Remove(far_[0]));
  EXPECT_EQ(table_.TakePromoted(), std::vector<PeerId>{waiting[waiting.size() - 2]});
  EXPECT_EQ(table_.size(), 2 * config_.k);
  // One was removed and one came in, and the three oldest were forgotten.
  size_t promoted = 0;
  for (size_t i = 1; i < far_.size(); ++i) {
    table_.Remove(far_[i]);
    promoted += table_.TakePromoted().size();
  }
  EXPECT_EQ(promoted, config_.replacements - 2);
  for (size_t i = 0; i < 3; ++i) EXPECT_FALSE(table_.Contains(waiting[i])) << i;
  EXPECT_TRUE(table_.Contains(waiting[3]));
}

TEST_F(FullBucketTest, WhoCameInUnprovedIsThoughtTheLongestSilent) {
  const PeerId newcomer = PeerInBucket(0, rng_);
  Hear(newcomer);
  table_.Remove(far_.back());
  const Time quiet = kStart + config_.quiet_before_ping;
  EXPECT_EQ(Hear(PeerInBucket(0, rng_), quiet).ping->id, newcomer);
}

TEST_F(RoutingTableTest, ABucketIsStaleWithoutALookupInIt) {
  const PeerId near = PeerInBucket(5, rng_);
  Hear(PeerInBucket(1, rng_));
  Hear(near, kStart + Seconds(10));
  EXPECT_TRUE(table_.StaleBuckets(kStart).empty());
  EXPECT_EQ(table_.StaleBuckets(kStart + Nanoseconds(1)), std::vector<int>{1});
  EXPECT_EQ(table_.StaleBuckets(kStart + Seconds(20)), (std::vector<int>{1, 5}));
  table_.MarkLookup(PointOf(near), kStart + Seconds(20));
  table_.MarkLookup(PointOf(PeerInBucket(7, rng_)), kStart + Seconds(20));  // there is none
  EXPECT_EQ(table_.StaleBuckets(kStart + Seconds(20)), std::vector<int>{1});
  EXPECT_EQ(table_.DeepestBucket(), 5);
}

}  // namespace
}  // namespace crowdsurf::dht
