#include "coordinator-free-dht/core/routing_table.h"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace crowdsurf::dht
