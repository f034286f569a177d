// Whose turn it is: orders are written out by hand.
#include "base/edge/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf {
namespace {

std::string TakeAll(FairQueue<int>& queue) {
  std::string order;
  while (const auto turn = queue.Next()) order += turn->source + std::to_string(turn->item) + " ";
  return order;
}

TEST(FairQueueTest, SourcesTakeTurns) {
  FairQueue<int> queue(10, 10);
  for (int i = 1; i <= 3; ++i) EXPECT_FALSE(queue.Push("a", i));
  EXPECT_FALSE(queue.Push("b", 1));
  EXPECT_FALSE(queue.Push("c", 1));
  EXPECT_EQ(TakeAll(queue), "a1 b1 c1 a2 a3 ");
}

TEST(FairQueueTest, AFloodDisplacesItselfAndNobodyElse) {
  FairQueue<int> queue(4, 10);
  for (int i = 1; i <= 4; ++i) EXPECT_FALSE(queue.Push("flood", i));
  EXPECT_EQ(queue.Push("flood", 5), 5) << "its own newest";
  EXPECT_EQ(queue.Push("good", 1), 4) << "the newest of who has most";
  EXPECT_EQ(queue.Push("flood", 6), 6);
  EXPECT_EQ(TakeAll(queue), "flood1 good1 flood2 flood3 ");
}

TEST(FairQueueTest, WhoComesToAFullQueueOfEqualsGoes) {
  FairQueue<int> queue(2, 10);
  EXPECT_FALSE(queue.Push("a", 1));
  EXPECT_FALSE(queue.Push("b", 1));
  EXPECT_EQ(queue.Push("c", 1), 1);
  EXPECT_EQ(TakeAll(queue), "a1 b1 ");
}

TEST(FairQueueTest, ASourceHasNoMoreUnderWayThanItsShare) {
  FairQueue<int> queue(10, 2);
  for (int i = 1; i <= 4; ++i) EXPECT_FALSE(queue.Push("a", i));
  EXPECT_FALSE(queue.Push("b", 1));
  EXPECT_EQ(TakeAll(queue), "a1 b1 a2 ");
  queue.Done("a");
  EXPECT_EQ(TakeAll(queue), "a3 ");
  queue.Done("b");
  EXPECT_EQ(TakeAll(queue), "");
}

}  // namespace
}  // namespace crowdsurf
