// SendWindows against a fluid link, whose bandwidth x delay is known.
#include "worker/core/averaging/send_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kChunk = 127 << 10;
constexpr uint32_t kMost = 10'000;

// One lane: inputs leave one after another at the link's rate, and each comes back as a result of
// its size a round trip after its last byte.
struct Lane {
  SendWindows windows;
  double bytes_per_second = 0;
  Duration delay;  // round trip
  uint64_t chunk = kChunk;
  uint32_t most = kMost;
  Time now = Time::FromNanoseconds(1'000'000'000);
  Time free = now;
  std::queue<std::pair<Time, ChunkIndex>> results = {};
  uint32_t chunks = 0;
  uint32_t window = kLeastWindowChunks;
  Duration clump = {};  // results are taken once in so long

  void Run(Duration length) {
    const Time end = now + length;
    Send();
    while (results.front().first <= end) {
      now = results.front().first;
      windows.OnResult(now, PeerAt(0), results.front().second, chunk);
      results.pop();
      const uint64_t learnt = (windows.BytesTo(PeerAt(0)) + chunk - 1) / chunk;
      window = static_cast<uint32_t>(std::clamp<uint64_t>(learnt, kLeastWindowChunks, most));
      Send();
    }
    now = end;
  }
  void Send() {
    while (results.size() < window) {
      free = std::max(free, now) + Seconds(static_cast<double>(chunk) / bytes_per_second);
      windows.OnInput(now, PeerAt(0), ChunkIndex(chunks));
      results.emplace(Taken(free + delay), ChunkIndex(chunks++));
    }
  }
  Time Taken(Time at) const {
    if (clump == Duration()) return at;
    const int64_t step = clump.nanoseconds();
    return Time::FromNanoseconds((at.nanoseconds() + step - 1) / step * step);
  }
  double bdp() const { return bytes_per_second * delay.seconds() / static_cast<double>(chunk); }
};

Lane LaneOf(double megabytes_per_second, Duration delay, std::optional<Duration> said) {
  Lane lane;
  lane.bytes_per_second = megabytes_per_second * 1e6;
  lane.delay = delay;
  lane.windows.OnRoundTrip(PeerAt(0), said);
  return lane;
}
Lane LaneOf(double megabytes_per_second, Duration delay) {
  return LaneOf(megabytes_per_second, delay, delay);
}

TEST(SendWindowTest, OnALongLinkItComesToLieBetweenBandwidthTimesDelayAndTwiceThat) {
  for (const double rate : {20., 125., 1250.}) {
    for (const int delay : {20, 80, 200}) {
      Lane lane = LaneOf(rate, Milliseconds(delay));
      lane.Run(Milliseconds(delay) * 20);
      EXPECT_GE(lane.window, lane.bdp()) << rate << " MB/s, " << delay << " ms";
      EXPECT_LE(lane.window, std::max(2 * lane.bdp() + 2, 8.)) << rate << " MB/s, " << delay;
    }
  }
}

TEST(SendWindowTest, UntilThenItDoublesEachRoundTrip) {
  Lane lane = LaneOf(1250, Milliseconds(80));
  for (uint32_t doubled = 16; doubled <= 256; doubled *= 2) {
    lane.Run(Milliseconds(84));
    EXPECT_GE(lane.window, doubled * 85 / 100);
    EXPECT_LE(lane.window, doubled + 1);
  }
}

TEST(SendWindowTest, OnAShortLinkItStaysAsItIs) {
  for (const double rate : {125., 1250., 5000.}) {
    Lane lane = LaneOf(rate, Microseconds(100));
    for (int i = 0; i < 1000; ++i) {
      lane.Run(Milliseconds(1));
      ASSERT_EQ(lane.window, kLeastWindowChunks) << rate;
    }
  }
}

// What the application waits for beside the link is in no round trip of the kernel.
TEST(SendWindowTest, ABusyOwnerOnAShortLinkWidensNothing) {
  Lane lane = LaneOf(1250, Milliseconds(5), Microseconds(60));
  lane.Run(Seconds(2));
  EXPECT_EQ(lane.window, kLeastWindowChunks);
}

// Nor where results wait until there is a processor, and all come at once.
TEST(SendWindowTest, ResultsThatComeAtOnceWidenNothing) {
  for (const Duration round_trip : {Microseconds(60), Milliseconds(10)}) {
    Lane lane = LaneOf(1250, Microseconds(60), round_trip);
    lane.clump = Milliseconds(30);
    lane.Run(Seconds(3));
    EXPECT_EQ(lane.window, kLeastWindowChunks);
  }
}

TEST(SendWindowTest, AStallDoesNotShrinkIt) {
  Lane lane = LaneOf(125, Milliseconds(80));
  lane.Run(Seconds(3));
  const uint32_t before = lane.window;
  lane.free = lane.now + Seconds(2);  // nothing leaves for so long
  lane.Run(Seconds(2.5));
  EXPECT_EQ(lane.window, before);
}

TEST(SendWindowTest, TheTimeBetweenRoundsSaysNothing) {
  SendWindows windows;
  windows.OnRoundTrip(PeerAt(0), Milliseconds(10));
  Time now = Time::FromNanoseconds(1'000'000'000);
  for (int round = 0; round < 20; ++round) {
    windows.OnRoundOpened();
    // The chunks of the round before, under the same numbers: their results never came.
    for (const int chunk : {0, 1}) windows.OnInput(now, PeerAt(0), ChunkIndex(chunk));
    now = now + Milliseconds(10);
    windows.OnResult(now, PeerAt(0), ChunkIndex(0), 1'000'000);
    EXPECT_EQ(windows.BytesTo(PeerAt(0)), 2'000'000U) << round;
    now = now + Seconds(30);
  }
}

TEST(SendWindowTest, ASlowerLinkShrinksItWhenItHasForgottenTheFastOne) {
  Lane lane = LaneOf(125, Milliseconds(80));
  lane.Run(Seconds(3));
  lane.bytes_per_second /= 4;
  lane.Run(Milliseconds(320));
  EXPECT_GT(lane.window, 2 * lane.bdp() * 3) << "a moment says little";
  lane.Run(Seconds(3));
  EXPECT_GE(lane.window, lane.bdp());
  EXPECT_LE(lane.window, 2 * lane.bdp() + 2);
}

TEST(SendWindowTest, WithoutAKnownDelayNothingIsLearnt) {
  Lane lane = LaneOf(125, Milliseconds(80), std::nullopt);
  lane.Run(Seconds(2));
  EXPECT_EQ(lane.window, kLeastWindowChunks);
  lane.windows.OnRoundTrip(PeerAt(0), Milliseconds(80));
  lane.Run(Seconds(2));
  EXPECT_GE(lane.window, lane.bdp());
  lane.windows.OnRoundTrip(PeerAt(0), std::nullopt);  // it is carried now
  lane.Run(Seconds(2));
  EXPECT_EQ(lane.window, kLeastWindowChunks);
}

TEST(SendWindowTest, ShortFormatsHaveAsManyBytesUnderWay) {
  Lane whole = LaneOf(125, Milliseconds(80)), eighth = whole;
  eighth.chunk = kChunk / 4;
  for (Lane* lane : {&whole, &eighth}) lane->Run(Seconds(3));
  EXPECT_NEAR(static_cast<double>(eighth.window * eighth.chunk),
              static_cast<double>(whole.window * whole.chunk), 0.02 * 125e6 * .08 * 2);
}

TEST(SendWindowTest, WhatAllMembersSendOneOwnerFitsInHalfOfWhatItKeeps) {
  EXPECT_EQ(MaxWindowChunks(1, kChunk, 8), kMaxUnderWayBytes / kChunk);
  for (const uint32_t ranks : {2U, 4U, 16U, 64U}) {
    const uint32_t most = MaxWindowChunks(ranks, kChunk, 8);
    EXPECT_LE(uint64_t{most} * kChunk * (ranks - 1), kMaxUnderWayBytes);
    EXPECT_GT(uint64_t{most + 1} * kChunk * (ranks - 1), kMaxUnderWayBytes);
    Lane lane = LaneOf(1e5, Milliseconds(300));
    lane.most = most;
    lane.Run(Seconds(6));
    EXPECT_EQ(lane.window, most);
  }
  EXPECT_EQ(MaxWindowChunks(64, uint64_t{1} << 20, 8), 8U) << "the least window all the same";
  EXPECT_EQ(MaxWindowChunks(2, 1, 8), kMaxChunks);
}

TEST(SendWindowTest, ItKnowsSoManyPeersAndForgetsTheOneToldOfLongestAgo) {
  SendWindows windows;
  const auto peer = [](size_t n) {
    std::array<uint8_t, PeerId::kBytes> bytes{};
    bytes[0] = static_cast<uint8_t>(n / 256);
    bytes[1] = static_cast<uint8_t>(n % 256);
    return PeerId(bytes);
  };
  const auto learn = [&](size_t n) {
    windows.OnRoundTrip(peer(n), Milliseconds(10));
    windows.OnInput(Time(), peer(n), ChunkIndex(0));
    windows.OnResult(Time() + Milliseconds(10), peer(n), ChunkIndex(0), 100);
  };
  for (size_t n = 0; n < SendWindows::kMaxPeers; ++n) learn(n);
  learn(0);
  learn(SendWindows::kMaxPeers);
  EXPECT_EQ(windows.BytesTo(peer(1)), 0U);
  for (const size_t n : {size_t{0}, size_t{2}, SendWindows::kMaxPeers})
    EXPECT_EQ(windows.BytesTo(peer(n)), 200U) << n;
}

}  // namespace
}  // namespace crowdsurf::worker
