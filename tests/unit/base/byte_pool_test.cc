#include "base/byte_pool.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace crowdsurf {
namespace {

constexpr size_t kChunk = size_t{128} * 1024;

TEST(BytePoolTest, ABufferIsUsedAgainAsItIs) {
  BytePool pool(2 * kChunk);
  Bytes first = pool.Take(kChunk);
  first[7] = 42;
  const uint8_t* const place = first.data();
  pool.Give(std::move(first));
  EXPECT_EQ(pool.waiting_bytes(), kChunk);
  const Bytes again = pool.Take(kChunk - 4);
  EXPECT_EQ(again.data(), place);
  EXPECT_EQ(again.size(), kChunk - 4);
  EXPECT_EQ(again[7], 42);
  EXPECT_EQ(pool.waiting_bytes(), 0U);
}

TEST(BytePoolTest, TheLastOneGivenComesFirst) {
  BytePool pool(2 * kChunk);
  Bytes one = pool.Take(kChunk), other = pool.Take(kChunk);
  const uint8_t* const last = other.data();
  pool.Give(std::move(one));
  pool.Give(std::move(other));
  EXPECT_EQ(pool.Take(kChunk).data(), last);
}

TEST(BytePoolTest, ItKeepsNoMoreThanItsBound) {
  BytePool pool(kChunk);
  pool.Give(Bytes(kChunk));
  pool.Give(Bytes(kChunk));
  EXPECT_EQ(pool.waiting_bytes(), kChunk);
  BytePool none(0);
  none.Give(Bytes(kChunk));
  EXPECT_EQ(none.waiting_bytes(), 0U);
  EXPECT_EQ(none.Take(kChunk).size(), kChunk);
}

TEST(BytePoolTest, SmallOnesPassByAndTooSmallOnesDoNotGrow) {
  BytePool pool(4 * kChunk);
  pool.Give(Bytes(BytePool::kMinBytes - 1));
  EXPECT_EQ(pool.waiting_bytes(), 0U);
  pool.Give(Bytes(BytePool::kMinBytes));
  EXPECT_EQ(pool.Take(100), Bytes(100, 0));
  EXPECT_EQ(pool.waiting_bytes(), BytePool::kMinBytes);
  EXPECT_EQ(pool.Take(kChunk), Bytes(kChunk, 0));
  EXPECT_EQ(pool.waiting_bytes(), 0U);
}

TEST(BytePoolTest, ASharedOneComesBackWithItsLastOwnerAlsoWithoutTheOthersPool) {
  auto pool = std::make_shared<BytePool>(4 * kChunk);
  std::shared_ptr<const Bytes> one = pool->Share(Bytes(kChunk, 3));
  std::shared_ptr<const Bytes> other = one;
  one.reset();
  EXPECT_EQ(pool->waiting_bytes(), 0U);
  const std::weak_ptr<BytePool> watched = pool;
  pool.reset();
  EXPECT_EQ(watched.lock()->waiting_bytes(), 0U);
  EXPECT_EQ(other->at(0), 3);
  other.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(BytePoolTest, NoBufferHasTwoOwnersWhateverTheThreads) {
  BytePool pool(8 * kChunk);
  std::vector<std::thread> threads;
  for (uint8_t mark = 1; mark <= 4; ++mark) {
    threads.emplace_back([&pool, mark] {
      for (int i = 0; i < 500; ++i) {
        Bytes bytes = pool.Take(BytePool::kMinBytes);
        std::fill(bytes.begin(), bytes.end(), mark);
        EXPECT_EQ(bytes, Bytes(BytePool::kMinBytes, mark));
        pool.Give(std::move(bytes));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace crowdsurf
