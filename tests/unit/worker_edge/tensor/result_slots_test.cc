// Results are received where they will lie: who may write to a slot, and what becomes of bytes that
// have to leave it.
#include "worker/edge/tensor/result_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kBytes = 20'000;

InstanceId Instance(uint8_t n) {
  std::array<uint8_t, 16> bytes{};
  bytes.fill(n);
  return InstanceId(bytes);
}
const InstanceId kRound = Instance(1);

class ResultSlotsTest : public testing::Test {
 protected:
  ResultSlotsTest() {
    slots_.Open(kRound, {std::span(memory_).first(kBytes), std::span(memory_).subspan(kBytes)});
  }
  // As an I/O thread does: `count` more bytes of that value.
  static void Write(ResultSlots::Landing& landing, size_t count, uint8_t value) {
    const auto lock = landing.Using();
    std::fill_n(landing.rest().begin(), count, value);
    landing.Got(count);
    if (landing.whole()) landing.Land();
  }
  bool Holds(ByteView bytes, uint8_t value) {
    return bytes.size() == kBytes &&
           std::ranges::count(bytes, value) == static_cast<std::ptrdiff_t>(kBytes);
  }
  ByteView slot(size_t chunk) { return ByteView(memory_).subspan(chunk * kBytes, kBytes); }

  Bytes memory_ = Bytes(2 * kBytes);
  ResultSlots slots_{std::make_shared<BytePool>(1 << 20)};
};

TEST_F(ResultSlotsTest, WhatLandsIsWhereItWillLie) {
  const auto landing = slots_.Begin(kRound, 1, kBytes);
  ASSERT_NE(landing, nullptr);
  Write(*landing, 1, 7);
  Write(*landing, kBytes - 1, 7);
  EXPECT_TRUE(slots_.Keep(*landing));
  EXPECT_EQ(landing->bytes().data(), slot(1).data());
  EXPECT_TRUE(Holds(slot(1), 7) && Holds(slot(0), 0));
  EXPECT_EQ(slots_.Begin(kRound, 1, kBytes), nullptr) << "it has a result";
  slots_.Free(kRound, 1);
  EXPECT_NE(slots_.Begin(kRound, 1, kBytes), nullptr);
}

TEST_F(ResultSlotsTest, NothingLandsOutsideOfASlot) {
  EXPECT_EQ(slots_.Begin(kRound, 2, kBytes), nullptr);
  EXPECT_EQ(slots_.Begin(Instance(2), 0, kBytes), nullptr);
  EXPECT_EQ(slots_.Begin(kRound, 0, kBytes - 1), nullptr);
  EXPECT_EQ(slots_.Begin(kRound, 0, kBytes + 1), nullptr);
  slots_.Take(kRound, 0);
  EXPECT_EQ(slots_.Begin(kRound, 0, kBytes), nullptr) << "the host writes there";
}

TEST_F(ResultSlotsTest, TwoDoNotLandInOnePlace) {
  const auto first = slots_.Begin(kRound, 0, kBytes);
  EXPECT_EQ(slots_.Begin(kRound, 0, kBytes), nullptr);
  slots_.Abandon(*first);  // its connection has ended
  EXPECT_NE(slots_.Begin(kRound, 0, kBytes), nullptr);
}

TEST_F(ResultSlotsTest, AHostThatWantsItsSlotGetsItAtOnceAndTheResultGoesOnElsewhere) {
  for (const size_t got : {size_t{0}, size_t{1}, kBytes - 1, kBytes}) {
    const auto landing = slots_.Begin(kRound, 0, kBytes);
    ASSERT_NE(landing, nullptr);
    Write(*landing, got, 7);
    slots_.Take(kRound, 0);
    std::fill_n(memory_.begin(), kBytes, uint8_t{9});
    if (got < kBytes) Write(*landing, kBytes - got, 7);
    EXPECT_TRUE(Holds(landing->bytes(), 7)) << got;
    EXPECT_FALSE(slots_.Keep(*landing));
    slots_.Drop(*landing);
    EXPECT_TRUE(Holds(slot(0), 9));
    EXPECT_EQ(slots_.Begin(kRound, 0, kBytes), nullptr) << "the host's still";
    slots_.Free(kRound, 0);
  }
}

TEST_F(ResultSlotsTest, AfterCloseNobodyWritesThere) {
  const auto landing = slots_.Begin(kRound, 0, kBytes);
  Write(*landing, 5, 7);
  slots_.Close(kRound);
  Bytes().swap(memory_);  // the sanitizer would tell
  Write(*landing, kBytes - 5, 7);
  EXPECT_TRUE(Holds(landing->bytes(), 7));
  EXPECT_FALSE(slots_.Keep(*landing));
  EXPECT_EQ(slots_.Begin(kRound, 0, kBytes), nullptr);
  slots_.Close(kRound);  // as a round that ends twice
}

TEST_F(ResultSlotsTest, WhatIsNotWantedFreesItsSlot) {
  const auto landing = slots_.Begin(kRound, 0, kBytes);
  Write(*landing, kBytes, 7);
  slots_.Free(kRound, 0);  // not what has landed and nobody has looked at
  EXPECT_EQ(slots_.Begin(kRound, 0, kBytes), nullptr);
  slots_.Drop(*landing);
  slots_.Drop(*landing);
  EXPECT_NE(slots_.Begin(kRound, 0, kBytes), nullptr);
}

// A slow peer's result lands on one I/O thread; another thread's goes on beside it.
TEST_F(ResultSlotsTest, AResultThatIsBeingReadHoldsNoOtherUp) {
  const auto slow = slots_.Begin(kRound, 0, kBytes);
  const auto reads = slow->Using();
  std::thread other([this] {
    const auto landing = slots_.Begin(kRound, 1, kBytes);
    ASSERT_NE(landing, nullptr);
    Write(*landing, kBytes, 7);
  });
  other.join();  // hangs where the two share a lock
  EXPECT_TRUE(Holds(slot(1), 7));
}

// Two I/O threads land results in pieces, and give some up, while the host takes slots, frees them
// and looks at what has come: each result has its own bytes in the end, wherever they lie.
TEST_F(ResultSlotsTest, EachResultHasItsOwnBytesWhateverTheOthersDoMeanwhile) {
  constexpr int kResults = 3000;
  constexpr uint64_t kSeed = 27;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Rng host(kSeed);
  std::mutex mutex;
  std::vector<std::pair<std::shared_ptr<ResultSlots::Landing>, uint8_t>> landed;
  const auto receive = [&](uint64_t seed) {
    Rng network(seed);
    for (int i = 0; i < kResults / 2;) {
      const auto landing = slots_.Begin(kRound, static_cast<uint32_t>(network.Uniform(2)), kBytes);
      if (landing == nullptr) continue;
      const auto value = static_cast<uint8_t>(1 + i % 250);
      bool lost = false;
      for (size_t left = kBytes; left > 0 && !lost;) {
        const size_t piece = std::min<size_t>(left, 1 + network.Uniform(kBytes));
        lost = piece < left && network.Uniform(8) == 0;
        if (lost) slots_.Abandon(*landing);
        if (!lost) Write(*landing, piece, value);
        left -= piece;
      }
      if (lost) continue;
      ++i;
      const std::lock_guard lock(mutex);
      landed.emplace_back(landing, value);
    }
  };
  std::thread first([&] { receive(kSeed + 1); }), second([&] { receive(kSeed + 2); });
  int seen = 0;
  while (seen < kResults) {
    const auto chunk = static_cast<uint32_t>(host.Uniform(2));
    if (host.Uniform(4) == 0) {
      slots_.Take(kRound, chunk);
      std::fill_n(memory_.begin() + static_cast<std::ptrdiff_t>(chunk * kBytes), kBytes,
                  uint8_t{255});
    }
    slots_.Free(kRound, chunk);
    decltype(landed) now;
    {
      const std::lock_guard lock(mutex);
      now.swap(landed);
    }
    for (auto& [landing, value] : now) {
      ++seen;
      ASSERT_TRUE(Holds(landing->bytes(), value)) << seen;
      if (host.Uniform(2) == 0) slots_.Keep(*landing);
      slots_.Drop(*landing);
    }
  }
  first.join();
  second.join();
}

}  // namespace
}  // namespace crowdsurf::worker
