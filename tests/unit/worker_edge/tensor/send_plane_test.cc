// One queue a peer for all that is sent: in which order it leaves, what is counted, and what is
// dropped.
#include "worker/edge/tensor/send_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker_edge/tensor/planes.h"

namespace crowdsurf::worker {
namespace {

constexpr uint32_t kChunks = Planes::kChunks;

// A failure closes the peer's queue, and the drain opens it: nothing depends on how fast a link is.
TEST(SendPlaneTest, AStateFrameAndAMixMessageShareOneQueueInTheirOrder) {
  Planes a, b;
  a.Introduce(b.id(), b.endpoint());
  a.Do([&](Time now) {
    a.sends().OnFailed(now, b.id());
    a.PushState(now, b.id(), {1});
    a.PushMix(now, b.id());
    a.PushState(now, b.id(), {2});
    EXPECT_EQ(a.waiting(), 3);
    a.sends().OnDrained(now, b.id());
  });
  EXPECT_TRUE(b.Eventually([&] { return b.order_here.size() == kChunks + 2; }));
  EXPECT_THAT(b.order_here, testing::ElementsAre("state 1", "mix 0", "state 2", "mix 1", "mix 2",
                                                 "mix 3", "mix 4", "mix 5", "mix 6", "mix 7"));
  EXPECT_TRUE(a.Eventually([&] { return a.mixes_sent == 1 && a.waiting() == 0; }));
}

TEST(SendPlaneTest, AMessageThatIsAlwaysRenewedHoldsNothingUp) {
  constexpr uint32_t kLong = 4096;  // chunks: far more than a link takes until it is full
  Planes a, b;
  a.Introduce(b.id(), b.endpoint());
  a.Do([&](Time now) {
    a.before_drained = [&](Time at, const PeerId& to) { a.PushMix(at, to, kLong); };
    a.sends().OnFailed(now, b.id());
    a.PushMix(now, b.id(), kLong);
    a.PushState(now, b.id(), {1});
    a.sends().OnDrained(now, b.id());
  });
  EXPECT_TRUE(b.Eventually([&] { return std::ranges::count(b.order_here, "state 1") == 1; }))
      << "the message keeps the head of the queue, and is never at its end";
  EXPECT_EQ(a.mix_sent(), 0u);
}

TEST(SendPlaneTest, WhatWaitsForADeadPeerIsDroppedAndCountedOnce) {
  Planes a, b;
  a.Introduce(b.id(), b.endpoint());
  a.Do([&](Time now) {
    a.sends().OnFailed(now, b.id());
    a.PushState(now, b.id(), {1});
    a.PushMix(now, b.id());
    a.PushMix(now, b.id());  // takes the place of the one before
    EXPECT_EQ(a.waiting(), 2);
    a.sends().OnDead(b.id());
    EXPECT_EQ(a.waiting(), 0);
    EXPECT_EQ(a.dropped_dead(), 2);
    a.sends().OnDead(b.id());
    EXPECT_EQ(a.dropped_dead(), 2);
    a.PushState(now, b.id(), {2});  // it lives after all
  });
  EXPECT_TRUE(b.Eventually([&] { return !b.order_here.empty(); }));
  EXPECT_THAT(b.order_here, testing::ElementsAre("state 2"));
  EXPECT_EQ(a.mix_sent(), 0u);
}

// The core waits for word of each message: one that finds no room is as if lost on the way.
TEST(SendPlaneTest, AMessageThatFindsNoRoomCountsAsSent) {
  Planes a, b;
  a.Introduce(b.id(), b.endpoint());
  a.Do([&](Time now) {
    a.sends().OnFailed(now, b.id());
    a.PushState(now, b.id(), Bytes(31 << 20));
    while (a.dropped_full() == 0) a.PushState(now, b.id(), {});
    a.PushMix(now, b.id());
    EXPECT_EQ(a.dropped_full(), 2);
    a.sends().OnDead(b.id());
  });
  EXPECT_EQ(a.mix_sent(), 1u);
}

}  // namespace
}  // namespace crowdsurf::worker
