// When what waits for a peer is tried again, and what is dropped.
#include "worker/core/link/send_queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/numbered_peers.h"

namespace crowdsurf::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Time kStart = Time::FromNanoseconds(1'000'000'000);

class SendQueuesTest : public testing::Test {
 protected:
  // Everything that may be tried now, as a link that takes it all.
  std::vector<int> Sent(const PeerId& to) {
    std::vector<int> sent;
    while (const int* next = queues_.Next(to)) {
      sent.push_back(*next);
      queues_.Pop(to);
    }
    return sent;
  }
  void Fill(const PeerId& to, int first, int last) {
    for (int i = first; i <= last; ++i) ASSERT_TRUE(queues_.Push(to, i, 10));
  }

  const PeerId a_ = Id(1), b_ = Id(2);
  SendQueues<int> queues_{
      {.peer_bytes = 100, .all_bytes = 150, .after_failure = Seconds(1), .retry = Seconds(4)}};
};

TEST_F(SendQueuesTest, AnOpenLinkTakesSendsInTheirOrderAndNothingIsRemembered) {
  Fill(a_, 1, 3);
  EXPECT_THAT(Sent(a_), ElementsAre(1, 2, 3));
  EXPECT_EQ(queues_.size(), 0u);
  EXPECT_EQ(queues_.bytes(), 0u);
  EXPECT_TRUE(queues_.NextDeadline().infinite());
}

TEST_F(SendQueuesTest, AFullLinkWaitsForItsDrainingAndOthersDoNot) {
  Fill(a_, 1, 2);
  Fill(b_, 8, 8);
  queues_.OnFull(kStart, a_);
  EXPECT_THAT(Sent(a_), IsEmpty());
  EXPECT_THAT(Sent(b_), ElementsAre(8));
  queues_.OnDrained(a_);
  EXPECT_THAT(Sent(a_), ElementsAre(1, 2));
}

TEST_F(SendQueuesTest, ASendThatLeavesInPartsGivesTheOthersTheirTurn) {
  Fill(a_, 1, 3);
  queues_.Yield(a_);
  EXPECT_EQ(*queues_.Next(a_), 2);
  Fill(a_, 4, 4);
  EXPECT_THAT(Sent(a_), ElementsAre(2, 3, 1, 4));
  Fill(a_, 5, 5);
  queues_.Yield(a_);
  EXPECT_EQ(queues_.size(), 1u);
  EXPECT_EQ(queues_.bytes(), 10u);
  EXPECT_THAT(Sent(a_), ElementsAre(5)) << "alone, it goes on at once";
}

// Even if the link is full after each part, and the long one is never at its end.
TEST_F(SendQueuesTest, WhatIsBehindALongSendWaitsForOnePartOfIt) {
  constexpr int kLong = 1;
  Fill(a_, kLong, 3);
  std::vector<int> left;
  for (int drained = 0; drained < 6; ++drained) {
    left.push_back(*queues_.Next(a_));
    if (left.back() == kLong) {
      queues_.Yield(a_);
      Fill(a_, 10 + drained, 10 + drained);
    } else {
      queues_.Pop(a_);
    }
    queues_.OnFull(kStart, a_);
    queues_.OnDrained(a_);
  }
  EXPECT_THAT(left, ElementsAre(kLong, 2, 3, kLong, 10, kLong));
}

TEST_F(SendQueuesTest, AFullLinkThatNeverSaysSoIsTriedAgain) {
  Fill(a_, 1, 1);
  queues_.OnFull(kStart, a_);
  EXPECT_EQ(queues_.NextDeadline(), kStart + Seconds(4));
  EXPECT_THAT(queues_.TakeDue(kStart + Seconds(3.9)), IsEmpty());
  EXPECT_THAT(queues_.TakeDue(kStart + Seconds(4)), ElementsAre(a_));
  EXPECT_THAT(Sent(a_), ElementsAre(1));
}

TEST_F(SendQueuesTest, AFailedLinkIsTriedAgainWithWhatWaitsAndWhatCameSince) {
  Fill(a_, 1, 1);
  queues_.OnFull(kStart, a_);
  queues_.OnFailed(kStart, a_);
  Fill(a_, 2, 2);
  EXPECT_THAT(Sent(a_), IsEmpty());
  EXPECT_THAT(queues_.TakeDue(kStart + Seconds(1)), ElementsAre(a_));
  EXPECT_THAT(Sent(a_), ElementsAre(1, 2));
}

TEST_F(SendQueuesTest, AFailureWithNothingWaitingIsForgottenInTime) {
  queues_.OnFailed(kStart, a_);
  EXPECT_THAT(queues_.TakeDue(kStart + Seconds(1)), IsEmpty());
  EXPECT_TRUE(queues_.NextDeadline().infinite());
  Fill(a_, 1, 1);
  EXPECT_THAT(Sent(a_), ElementsAre(1));
}

TEST_F(SendQueuesTest, ADeadPeersSendsAreDroppedAndTheirBytesAreFree) {
  Fill(a_, 1, 10);
  EXPECT_FALSE(queues_.Push(a_, 11, 10)) << "of a peer";
  Fill(b_, 1, 5);
  EXPECT_FALSE(queues_.Push(b_, 6, 10)) << "of all";
  EXPECT_EQ(queues_.Drop(a_), 10u);
  EXPECT_EQ(queues_.Drop(a_), 0u);
  EXPECT_EQ(queues_.bytes(), 50u);
  EXPECT_EQ(queues_.size(), 5u);
  Fill(b_, 6, 10);
}

TEST_F(SendQueuesTest, WhatWaitsCanBeFoundAndChangedInItsPlace) {
  Fill(a_, 1, 3);
  const auto two = [](int item) { return item == 2; };
  ASSERT_NE(queues_.Find(a_, two), nullptr);
  *queues_.Find(a_, two) = 20;
  EXPECT_EQ(queues_.Find(a_, two), nullptr);
  EXPECT_EQ(queues_.Find(b_, two), nullptr);
  EXPECT_THAT(Sent(a_), ElementsAre(1, 20, 3));
}

}  // namespace
}  // namespace crowdsurf::worker
