// A trainer's leases: what it trains next, and what counts.
#include "worker/core/shard/lease_queue.h"

#include <gtest/gtest.h>

#include "tests/unit/worker_core/shard/granted.h"

namespace crowdsurf::worker {
namespace {

TEST(LeaseQueueTest, BatchesAreUnitsOfOneLeaseInOrder) {
  LeaseQueue queue(4);
  EXPECT_EQ(queue.Next(), std::nullopt);
  queue.Take(Granted(3, 10, {{0, 8, 6}, {1, 0, 4}}));
  EXPECT_EQ(queue.at(), (StreamPosition{3, 10}));
  for (const auto& [batch, position] :
       {std::pair(Lease{0, 8, 4}, 14), std::pair(Lease{0, 12, 2}, 16),
        std::pair(Lease{1, 0, 4}, 20)}) {
    EXPECT_EQ(queue.Next(), batch);
    EXPECT_EQ(queue.Next(), batch) << "until it is trained";
    queue.Trained();
    EXPECT_EQ(queue.at(), (StreamPosition{3, static_cast<uint64_t>(position)}));
  }
  EXPECT_EQ(queue.Next(), std::nullopt);
  queue.Trained();
  EXPECT_EQ(queue.at().position, 20u) << "nothing was in hand";
}

TEST(LeaseQueueTest, TheSameStreamGoesOnBehindWhatIsTrained) {
  LeaseQueue queue(4);
  queue.Take(Granted(3, 0, {{0, 0, 8}}));
  queue.Next();
  queue.Trained();
  queue.Take(Granted(3, 0, {{0, 0, 8}, {0, 20, 4}}));
  EXPECT_EQ(queue.Next(), (Lease{0, 4, 4}));
  queue.Take(Granted(3, 4, {{0, 4, 4}, {0, 20, 4}}));  // what is committed is named no more
  queue.Trained();
  EXPECT_EQ(queue.at(), (StreamPosition{3, 8})) << "what was in hand counts";
  EXPECT_EQ(queue.Next(), (Lease{0, 20, 4}));
}

TEST(LeaseQueueTest, AnotherStreamBeginsAnewAndWhatWasInHandDoesNotCount) {
  LeaseQueue queue(4);
  queue.Take(Granted(3, 0, {{0, 0, 8}}));
  queue.Next();
  queue.Take(Granted(5, 32, {{2, 0, 4}}));
  queue.Trained();
  EXPECT_EQ(queue.at(), (StreamPosition{5, 32}));
  EXPECT_EQ(queue.Next(), (Lease{2, 0, 4}));
  queue.Take(Granted(0, 0, {}));
  EXPECT_EQ(queue.Next(), std::nullopt);
  EXPECT_EQ(queue.at(), StreamPosition());
}

TEST(LeaseQueueTest, AnAdoptionEndsTheStreamForGood) {
  LeaseQueue queue(4);
  queue.Take(Granted(3, 0, {{0, 0, 8}}));
  queue.Drop();
  EXPECT_EQ(queue.at(), StreamPosition());
  queue.Drop();  // a second one, before the agent has granted another
  queue.Take(Granted(3, 0, {{0, 0, 12}}));
  EXPECT_EQ(queue.Next(), std::nullopt) << "the agent has not heard of it yet";
  queue.Take(Granted(4, 0, {{0, 0, 8}}));
  EXPECT_EQ(queue.Next(), (Lease{0, 0, 4}));
}

TEST(LeaseQueueTest, ClosedLeavesNothingToTrain) {
  LeaseQueue queue(4);
  LeasesGranted last = Granted(3, 0, {{0, 0, 8}});
  queue.Take(last);
  queue.Next();
  last.closed = true;
  queue.Take(last);
  EXPECT_TRUE(queue.closed());
  EXPECT_EQ(queue.Next(), std::nullopt);
  queue.Trained();
  EXPECT_EQ(queue.at().position, 4u) << "it was in the parameters already";
}

}  // namespace
}  // namespace crowdsurf::worker
