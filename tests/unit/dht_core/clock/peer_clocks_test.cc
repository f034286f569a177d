// The median of clocks: who moves it, how far, and what a reading is worth.
#include "coordinator-free-dht/core/clock/peer_clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "coordinator-free-dht/core/clock/clock_warning.h"

namespace crowdsurf::dht {
namespace {

constexpr Time kStart = Time::FromNanoseconds(3'600'000'000'000);
constexpr WallTime kEpoch = WallTime::FromNanoseconds(1'800'000'000'000'000'000);

PublicKey Peer(size_t n) {
  PublicKey key{};
  key[0] = static_cast<uint8_t>(n);
  key[1] = static_cast<uint8_t>(n >> 8);
  return key;
}

// This machine, whose clock is ahead of true time by `skew`, and peers.
class PeerClocksTest : public testing::Test {
 protected:
  Clocks at() const { return {now_, kEpoch + (now_ - kStart) + skew_}; }
  // The peer is ahead of true time by `skew`, and answers in the middle of the round trip.
  ClockSample Hear(size_t peer, double skew, Duration round_trip = Milliseconds(2)) {
    const WallTime said = kEpoch + (now_ - kStart) + Seconds(skew) - round_trip * 0.5;
    return clocks_.Add(at(), Peer(peer), said, round_trip);
  }
  double Offset() const { return clocks_.Offset(at()).seconds(); }

  Time now_ = kStart;
  Duration skew_;
  PeerClocks clocks_;
};

TEST_F(PeerClocksTest, AloneAClockIsRight) { EXPECT_EQ(Offset(), 0); }

TEST_F(PeerClocksTest, OfTwoClocksBothEndsTakeTheMiddle) {
  skew_ = Seconds(3.5);
  Hear(1, 0);
  EXPECT_NEAR(Offset(), -1.75, 1e-6);
  PeerClocks other;
  const Clocks there{now_, kEpoch};
  other.Add(there, Peer(2), at().wall, Duration());
  EXPECT_NEAR(other.Offset(there).seconds(), 1.75, 1e-6);
}

TEST_F(PeerClocksTest, AClockThatIsOffTakesTheTimeOfTheOthers) {
  for (const double skew : {3.5, -3.5, 2.2, 5.0}) {
    skew_ = Seconds(skew);
    clocks_ = PeerClocks();
    for (size_t peer = 1; peer <= 5; ++peer) {
      Hear(peer, 0);
      if (peer > 1) {
        EXPECT_NEAR(Offset(), -skew, 1e-6) << peer;
      }
    }
  }
}

TEST_F(PeerClocksTest, ARightClockIsNotMovedByOneThatIsOff) {
  for (size_t right = 1; right <= 8; ++right) {
    clocks_ = PeerClocks();
    for (size_t peer = 1; peer <= right; ++peer) Hear(peer, 0);
    Hear(100, 3.5);
    EXPECT_NEAR(Offset(), 0, 1e-6) << right;
  }
}

// Whatever one peer says, and however often, the job's time lies among the honest clocks.
TEST_F(PeerClocksTest, OneLiarDoesNotMoveTheMedianBeyondTheHonest) {
  constexpr uint64_t kSeed = 11;
  Rng rng(kSeed);
  for (int run = 0; run < 500; ++run) {
    clocks_ = PeerClocks();
    const size_t honest = 2 + rng.Uniform(9);
    double least = 0, most = 0;
    for (size_t peer = 1; peer <= honest; ++peer) {
      const double skew = rng.UniformDouble() - 0.5;
      least = std::min(least, skew);
      most = std::max(most, skew);
      Hear(peer, skew);
    }
    for (int lie = 0; lie < 5; ++lie) {
      Hear(100, (rng.UniformDouble() - 0.5) * 160'000);
      EXPECT_GE(Offset(), least - 1e-6) << "seed " << kSeed << " run " << run;
      EXPECT_LE(Offset(), most + 1e-6) << "seed " << kSeed << " run " << run;
    }
    EXPECT_EQ(clocks_.peers(), honest + 1);
  }
}

TEST_F(PeerClocksTest, TheMedianIsThatOfAllClocksWithOurs) {
  constexpr uint64_t kSeed = 12;
  Rng rng(kSeed);
  for (int run = 0; run < 500; ++run) {
    clocks_ = PeerClocks();
    skew_ = Seconds(rng.UniformDouble() * 8 - 4);
    std::vector<double> all = {skew_.seconds()};
    for (size_t peer = 1; peer <= 1 + rng.Uniform(12); ++peer) {
      all.push_back(rng.UniformDouble() * 8 - 4);
      Hear(peer, all.back());
    }
    std::sort(all.begin(), all.end());
    const size_t middle = all.size() / 2;
    const double median = all.size() % 2 == 1 ? all[middle] : (all[middle - 1] + all[middle]) / 2;
    EXPECT_NEAR(skew_.seconds() + Offset(), median, 1e-6) << "seed " << kSeed << " run " << run;
  }
}

TEST_F(PeerClocksTest, AReadingIsWorthItsRoundTrip) {
  skew_ = Seconds(3.5);
  for (size_t peer = 1; peer <= 2; ++peer) EXPECT_EQ(Hear(peer, 0), ClockSample::kTaken);
  // It may be wrong by .75 s, and is not beyond what the first one allows.
  const WallTime late = kEpoch + (now_ - kStart) - Seconds(1.5);
  EXPECT_EQ(clocks_.Add(at(), Peer(1), late, Seconds(1.5)), ClockSample::kWorse);
  EXPECT_NEAR(Offset(), -3.5, 1e-6);
  EXPECT_EQ(Hear(1, 0, Seconds(2) + Nanoseconds(1)), ClockSample::kSlow);
  EXPECT_EQ(Hear(3, 0, Nanoseconds(-1)), ClockSample::kSlow);
  // A minute later quartz may have drifted, and the worse reading is taken.
  now_ = now_ + PeerClocks::kPreferred + Nanoseconds(1);
  EXPECT_EQ(Hear(1, 0, Seconds(1.5)), ClockSample::kTaken);
}

TEST_F(PeerClocksTest, AClockThatIsSetIsHeardAtOnce) {
  for (size_t peer = 1; peer <= 3; ++peer) Hear(peer, 0);
  // This machine's own: nobody has to say anything.
  skew_ = Seconds(-5);
  EXPECT_NEAR(Offset(), 5, 1e-6);
  skew_ = Duration();
  EXPECT_NEAR(Offset(), 0, 1e-6);
  // The others', by a reading that is worse than the one before.
  for (size_t peer = 1; peer <= 3; ++peer)
    EXPECT_EQ(Hear(peer, 4, Milliseconds(20)), ClockSample::kTaken);
  EXPECT_NEAR(Offset(), 4, 1e-6);
}

TEST_F(PeerClocksTest, WhatIsADayAwayIsRefused) {
  EXPECT_EQ(Hear(1, 24 * 3600 - 1), ClockSample::kTaken);
  EXPECT_EQ(Hear(2, 24 * 3600 + 1), ClockSample::kFar);
  EXPECT_EQ(Hear(2, -24 * 3600 - 1), ClockSample::kFar);
  for (const int64_t any : {INT64_MIN, INT64_MAX, int64_t{0}})
    EXPECT_EQ(clocks_.Add(at(), Peer(2), WallTime::FromNanoseconds(any), Duration()),
              ClockSample::kFar);
  EXPECT_EQ(clocks_.peers(), 1u);
}

TEST_F(PeerClocksTest, PeersAreBoundedAndTheSilentOnesGoFirst) {
  for (size_t peer = 0; peer < 1'000; ++peer) {
    now_ = now_ + Milliseconds(1);
    Hear(peer, 0);
    Hear(7, 0);  // speaks on
    EXPECT_LE(clocks_.peers(), PeerClocks::kMostPeers);
  }
  EXPECT_EQ(Hear(7, 0, Seconds(1)), ClockSample::kWorse) << "it is known still";
  // Ten minutes later only who speaks counts.
  now_ = now_ + PeerClocks::kForgotten + Seconds(1);
  Hear(5'000, 0);
  EXPECT_EQ(clocks_.peers(), 1u);
}

TEST(ClockWarningTest, SaysItOnceAndAgainWhenItChangesMuch) {
  ClockWarning warning;
  Time now = kStart;
  const auto say = [&](double offset) {
    // For three seconds: it must last.
    const auto at_once = warning.Say(now + Seconds(7), Seconds(offset));
    now = now + Seconds(10);
    const auto then = warning.Say(now, Seconds(offset));
    return at_once ? at_once : then;
  };
  EXPECT_FALSE(say(0.99));
  EXPECT_EQ(say(-3.5), Seconds(-3.5));
  EXPECT_TRUE(warning.large());
  EXPECT_FALSE(say(-3.5));
  EXPECT_FALSE(say(-4.4));
  EXPECT_EQ(say(-4.5), Seconds(-4.5));
  EXPECT_EQ(say(4), Seconds(4));
  EXPECT_EQ(say(0.5), Seconds(0.5));
  EXPECT_FALSE(warning.large());
  EXPECT_FALSE(say(0.1));
  // Not more often than every ten seconds.
  EXPECT_TRUE(say(2));
  EXPECT_FALSE(warning.Say(now + Seconds(9.9), Seconds(6)));
  EXPECT_TRUE(warning.Say(now + Seconds(10), Seconds(6)));
}

// In its first moment a node may know no clock but the one that is off.
TEST(ClockWarningTest, ADistanceThatDoesNotLastIsNotSaid) {
  ClockWarning warning;
  for (int i = 0; i < 29; ++i)
    EXPECT_FALSE(warning.Say(kStart + Milliseconds(100 * i), Seconds(-1.1)));
  EXPECT_FALSE(warning.Say(kStart + Seconds(2.9), Seconds(0.1)));
  EXPECT_FALSE(warning.Say(kStart + Seconds(5), Seconds(2))) << "it begins anew";
  EXPECT_TRUE(warning.Say(kStart + Seconds(8), Seconds(2)));
}

}  // namespace
}  // namespace crowdsurf::dht
