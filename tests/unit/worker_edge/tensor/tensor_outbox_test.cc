// What an outbox does with bytes that are lent: it reads them where they lie, until it has to keep
// them.
#include "worker/edge/tensor/tensor_outbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

namespace crowdsurf::worker {
namespace {

constexpr size_t kBytes = 100'000;

class TensorOutboxTest : public testing::Test {
 protected:
  TensorOutbox::Pushed Lend(ByteView bytes) {
    return outbox_.Push({.header = {}, .payload = nullptr, .lent = bytes});
  }

  const std::shared_ptr<BytePool> pool_ = std::make_shared<BytePool>(4 * kBytes);
  TensorOutbox outbox_{8 * kBytes};
};

TEST_F(TensorOutboxTest, WhatIsLentIsReadWhereItLies) {
  const Bytes bytes(kBytes, 1);
  EXPECT_EQ(Lend(bytes), TensorOutbox::Pushed::kQueuedFirst);
  const auto front = outbox_.Front();
  ASSERT_TRUE(front.has_value());
  EXPECT_EQ(front->bytes().data(), bytes.data());
  EXPECT_EQ(front->size(), kTensorHeaderBytes + kBytes);
}

TEST_F(TensorOutboxTest, WhatIsKeptStaysAsItWas) {
  Bytes bytes(kBytes, 1);
  const auto owned = std::make_shared<const Bytes>(kBytes, 2);
  (void)Lend(bytes);
  (void)outbox_.Push({.header = {}, .payload = owned});
  (void)outbox_.Push({.header = {}, .payload = nullptr});
  (void)Lend(bytes);
  outbox_.Keep(*pool_);
  std::fill(bytes.begin(), bytes.end(), uint8_t{9});
  const std::vector<OutFrame> frames = outbox_.First(4, SIZE_MAX);
  ASSERT_EQ(frames.size(), 4U);
  for (const size_t lent : {size_t{0}, size_t{3}}) {
    EXPECT_TRUE(frames[lent].lent.empty());
    ASSERT_EQ(frames[lent].bytes().size(), kBytes);
    EXPECT_EQ(std::ranges::count(frames[lent].bytes(), uint8_t{1}), std::ptrdiff_t{kBytes});
  }
  EXPECT_EQ(frames[1].payload, owned);
  EXPECT_EQ(frames[2].size(), kTensorHeaderBytes);
}

TEST_F(TensorOutboxTest, TheFirstFramesEndWithTheOneThatFillsTheBytes) {
  const Bytes bytes(kBytes);
  for (int i = 0; i < 4; ++i) (void)Lend(bytes);
  EXPECT_EQ(outbox_.First(16, 1).size(), 1U);
  EXPECT_EQ(outbox_.First(16, kBytes + kTensorHeaderBytes).size(), 1U);
  EXPECT_EQ(outbox_.First(16, kBytes + kTensorHeaderBytes + 1).size(), 2U);
  EXPECT_EQ(outbox_.First(3, SIZE_MAX).size(), 3U);
}

TEST_F(TensorOutboxTest, AFrameIsHashedOnce) {
  const Bytes bytes(kBytes, 7);
  const TensorHeader header{.kind = TensorKind::kInput, .payload_bytes = kBytes, .instance = {}};
  for (int i = 0; i < 2; ++i)
    (void)outbox_.Push(
        {.header = EncodeTensorHeader(header), .unhashed = true, .payload = {}, .lent = bytes});
  OutFrame second = outbox_.First(2, SIZE_MAX)[1];
  SetTensorHash(second.header, second.bytes());
  outbox_.Hashed(1, second.header);
  (void)outbox_.Pop();
  const auto front = outbox_.Front();
  ASSERT_TRUE(front.has_value());
  EXPECT_FALSE(front->unhashed);
  const auto decoded = DecodeTensorHeader(front->header);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->hash, TensorPayloadHash(header.instance, bytes));
  EXPECT_EQ(decoded->payload_bytes, kBytes);
  outbox_.Close();
  outbox_.Hashed(0, second.header);  // its connection still wrote it
}

TEST_F(TensorOutboxTest, LentBytesCountForTheBound) {
  const Bytes bytes(kBytes);
  int queued = 0;
  while (Lend(bytes) != TensorOutbox::Pushed::kFull) ++queued;
  EXPECT_EQ(queued, 8);
}

TEST_F(TensorOutboxTest, WhoWasRefusedIsToldOnceAndWhenHalfOfItIsFree) {
  const Bytes bytes(kBytes);
  size_t left = 0;
  for (; Lend(bytes) != TensorOutbox::Pushed::kFull; ++left) {
  }
  int told = 0;
  while (left-- > 0) {
    const bool half_free = left * (kTensorHeaderBytes + kBytes) <= 4 * kBytes;
    EXPECT_EQ(outbox_.Pop(), half_free && told == 0) << left << " frames are left";
    told += half_free;
  }
  EXPECT_GT(told, 1);
}

// One thread reads what another lends, keeps and writes again: no byte of a later writing is seen.
TEST_F(TensorOutboxTest, NobodyReadsWhatWasKept) {
  constexpr int kRounds = 100;
  Bytes bytes(kBytes);
  std::atomic<bool> torn{false};
  std::atomic<int> read{0};
  // False: nothing is there.
  const auto read_one = [&](int round) {
    const auto reading = outbox_.Reading();
    const auto front = outbox_.Front();
    if (!front) return false;
    const ByteView seen = front->bytes();
    torn = torn || std::ranges::count(seen, seen.front()) != std::ptrdiff_t{kBytes} ||
           seen.front() != static_cast<uint8_t>(round);
    (void)outbox_.Pop();
    return true;
  };
  std::thread reader([&] {
    while (read < kRounds) read_one(read) ? void(++read) : std::this_thread::yield();
  });
  for (int round = 0; round < kRounds; ++round) {
    std::fill(bytes.begin(), bytes.end(), static_cast<uint8_t>(round));
    while (Lend(bytes) == TensorOutbox::Pushed::kFull) std::this_thread::yield();
    outbox_.Keep(*pool_);
  }
  reader.join();
  EXPECT_EQ(read, kRounds);
  EXPECT_FALSE(torn);
}

}  // namespace
}  // namespace crowdsurf::worker
