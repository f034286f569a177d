// One queue a peer for all that is sent: in which order it leaves, what is counted, and what is
// dropped.
#include "worker/edge/tensor/send_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/unit/worker_edge/tensor/planes.h"

namespace crowdsurf::worker {
namespace {

constexpr uint32_t kChunks = Planes::kChunks;

// A failure closes the peer's queue, and the drain opens it: nothing depends on how fast a link is.
class SendPlaneTest : public testing::Test {
 protected:
  SendPlaneTest() { a_.Introduce(b_.id(), b_.endpoint()); }
  // On the host thread, while nothing leaves for b_.
  void WhileClosed(const std::function<void(Time)>& work) {
    a_.Do([&](Time now) {
      a_.sends().OnFailed(now, b_.id());
      work(now);
    });
  }
  Planes a_, b_;
};

TEST_F(SendPlaneTest, AStateFrameAndAMixMessageShareOneQueueInTheirOrder) {
  WhileClosed([&](Time now) {
    a_.PushState(now, b_.id(), {1});
    a_.PushMix(now, b_.id());
    a_.PushState(now, b_.id(), {2});
    EXPECT_EQ(a_.waiting(), 3);
    a_.sends().OnDrained(now, b_.id());
  });
  EXPECT_TRUE(b_.Eventually([&] { return b_.order_here.size() == kChunks + 2; }));
  EXPECT_THAT(b_.order_here, testing::ElementsAre("state 1", "mix 0", "state 2", "mix 1", "mix 2",
                                                  "mix 3", "mix 4", "mix 5", "mix 6", "mix 7"));
  EXPECT_TRUE(a_.Eventually([&] { return a_.mixes_sent == 1 && a_.waiting() == 0; }));
}

TEST_F(SendPlaneTest, AMessageThatIsAlwaysRenewedHoldsNothingUp) {
  constexpr uint32_t kLong = 4096;  // chunks: far more than a link takes until it is full
  WhileClosed([&](Time now) {
    a_.before_drained = [&](Time at, const PeerId& to) { a_.PushMix(at, to, kLong); };
    a_.PushMix(now, b_.id(), kLong);
    a_.PushState(now, b_.id(), {1});
    a_.sends().OnDrained(now, b_.id());
  });
  EXPECT_TRUE(b_.Eventually([&] { return std::ranges::count(b_.order_here, "state 1") == 1; }))
      << "the message keeps the head of the queue, and is never at its end";
  EXPECT_EQ(a_.mix_sent(), 0u);
}

TEST_F(SendPlaneTest, WhatWaitsForADeadPeerIsDroppedAndCountedOnce) {
  WhileClosed([&](Time now) {
    a_.PushState(now, b_.id(), {1});
    a_.PushMix(now, b_.id());
    a_.PushMix(now, b_.id());  // takes the place of the one before
    EXPECT_EQ(a_.waiting(), 2);
    a_.sends().OnDead(b_.id());
    EXPECT_EQ(a_.waiting(), 0);
    EXPECT_EQ(a_.dropped_dead(), 2);
    a_.sends().OnDead(b_.id());
    EXPECT_EQ(a_.dropped_dead(), 2);
    a_.PushState(now, b_.id(), {2});  // it lives after all
  });
  EXPECT_TRUE(b_.Eventually([&] { return !b_.order_here.empty(); }));
  EXPECT_THAT(b_.order_here, testing::ElementsAre("state 2"));
  EXPECT_EQ(a_.mix_sent(), 0u);
}

// The core waits for word of each message: one that finds no room is as if lost on the way.
TEST_F(SendPlaneTest, AMessageThatFindsNoRoomCountsAsSent) {
  WhileClosed([&](Time now) {
    a_.PushState(now, b_.id(), Bytes(31 << 20));
    while (a_.dropped_full() == 0) a_.PushState(now, b_.id(), {});
    a_.PushMix(now, b_.id());
    EXPECT_EQ(a_.dropped_full(), 2);
    a_.sends().OnDead(b_.id());
  });
  EXPECT_EQ(a_.mix_sent(), 1u);
}

}  // namespace
}  // namespace crowdsurf::worker
