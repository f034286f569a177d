// Rounds of changes from a base: the owner's fold against a loop written here, equal bits at all
// members, and the same bytes in the next round, however that one is cut into chunks.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/rng.h"
#include "worker/core/reduce/reducer.h"

namespace crowdsurf::worker {
namespace {

using Floats = std::vector<float>;

constexpr size_t kElements = 5000;  // four blocks and a part of one
constexpr RoundHandle kFirst = 1, kSecond = 2;

Floats Values(uint64_t seed, double size) {
  Rng rng(seed);
  Floats out(kElements);
  for (float& x : out) x = static_cast<float>(size * rng.Normal());
  return out;
}

InstanceId Instance(uint8_t n) {
  std::array<uint8_t, 16> bytes{};
  bytes.fill(n);
  return InstanceId(bytes);
}

struct Member {
  Floats snapshot, rest, first = Floats(kElements, 7), second = Floats(kElements, 7);
  Reducer<float> reducer{1 << 20};
};

class ReducerChangesTest : public testing::Test {
 protected:
  static constexpr size_t kMembers = 3;
  const std::vector<ChunkSpan> chunks_ = {{0, 0, 2048}, {1, 2048, 2952}};
  const std::vector<double> weights_ = {3, 1, 4};

  void SetUp() override {
    for (size_t rank = 0; rank < kMembers; ++rank) {
      auto& member = *members_.emplace_back(std::make_unique<Member>());
      member.snapshot = Values(rank + 10, 1);
      member.rest = Values(rank + 20, .01);
      RoundBuffers<float> buffers{Instance(1),       static_cast<int>(rank), chunks_,
                                  WireFormat::kInt8, member.snapshot,        member.first};
      buffers.base = base_;
      buffers.from_base = true;
      // One of them comes without a rest.
      if (rank > 0) buffers.rest = member.rest;
      member.reducer.Open(kFirst, std::move(buffers));
    }
    for (uint32_t c = 0; c < chunks_.size(); ++c) Reduce(ChunkIndex(c), chunks_[c].owner);
  }

  void Reduce(ChunkIndex chunk, size_t owner) {
    Reducer<float>& reducer = members_[owner]->reducer;
    for (size_t rank = kMembers; rank-- > 0;) {
      if (rank == owner) continue;
      const Bytes wire = members_[rank]->reducer.OwnInput(kFirst, chunk);
      ASSERT_EQ(wire.size(), Int8Bytes(chunks_[chunk.value()].count));
      ASSERT_TRUE(reducer.IsSound(kFirst, ChunkArrived::Kind::kInput, chunk, wire));
      reducer.KeepInput(kFirst, static_cast<int>(rank), chunk, 0, wire);
    }
    reducer.Fold(kFirst, {chunk, 0, RankSet::FirstRanks(kMembers), weights_});
    const SharedBytes result = reducer.Result(kFirst, chunk);
    for (size_t rank = 0; rank < kMembers; ++rank) {
      if (rank == owner) continue;
      Reducer<float>& other = members_[rank]->reducer;
      ASSERT_TRUE(other.IsSound(kFirst, ChunkArrived::Kind::kResult, chunk, *result));
      other.StoreResult(kFirst, chunk, *result);
      EXPECT_EQ(*other.Result(kFirst, chunk), *result) << "served from its slot, at " << rank;
    }
  }

  const Floats base_ = Values(1, 1);
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(ReducerChangesTest, TheResultIsTheMeanOfWhatTheMembersHaveBeyondTheBase) {
  for (size_t i = 0; i < kElements; ++i) {
    double mean = 0, size = 0;
    for (size_t rank = 0; rank < kMembers; ++rank) {
      const Member& member = *members_[rank];
      const double rest = rank > 0 ? member.rest[i] : 0;
      mean += weights_[rank] * (static_cast<double>(member.snapshot[i]) - base_[i] + rest) / 8;
    }
    // Normal values of a few thousand: none is beyond 9, so a step of the scale is 9 / 127 at most;
    // half of one at the input, and half of one at the result.
    size = 9.0 / 127;
    EXPECT_NEAR(members_[0]->first[i], mean, size);
  }
}

TEST_F(ReducerChangesTest, AllMembersHoldTheSameBits) {
  EXPECT_EQ(members_[1]->first, members_[0]->first);
  EXPECT_EQ(members_[2]->first, members_[0]->first);
}

// The inputs of a second round are what the first one left, and travel without another error. So a
// stand-in sends what the lost member would have sent.
TEST_F(ReducerChangesTest, WhatWasDecodedTravelsAsItIsUnderAnyChunking) {
  const std::vector<ChunkSpan> other = {{0, 0, 1024}, {1, 1024, 3072}, {2, 4096, 904}};
  std::vector<std::vector<Bytes>> inputs;
  for (const auto& member : members_) {
    member->reducer.Open(kSecond,
                         {Instance(2), 0, other, WireFormat::kInt8, member->first, member->second});
    auto& own = inputs.emplace_back();
    for (uint32_t c = 0; c < other.size(); ++c)
      own.push_back(member->reducer.OwnInput(kSecond, ChunkIndex(c)));
  }
  EXPECT_EQ(inputs[1], inputs[0]);
  EXPECT_EQ(inputs[2], inputs[0]);
  for (uint32_t c = 0; c < other.size(); ++c) {
    Floats back(other[c].count);
    FromInt8(inputs[0][c], back);
    const auto begin = members_[0]->first.begin() + static_cast<std::ptrdiff_t>(other[c].begin);
    EXPECT_EQ(back, Floats(begin, begin + other[c].count));
  }
}

TEST_F(ReducerChangesTest, BytesThatNobodyCanHaveEncodedAreNotSound) {
  Reducer<float>& reducer = members_[0]->reducer;
  const auto sound = [&](const Bytes& wire) {
    return reducer.IsSound(kFirst, ChunkArrived::Kind::kInput, ChunkIndex(0), wire);
  };
  const Bytes good = members_[1]->reducer.OwnInput(kFirst, ChunkIndex(0));
  ASSERT_TRUE(sound(good));
  Bytes bad = good;
  bad[7] = 0x7F, bad[6] = 0xC0;  // the first scale is NaN
  EXPECT_FALSE(sound(bad));
  EXPECT_FALSE(sound(Bytes(2 * 2048)));                      // Float16
  EXPECT_FALSE(sound(Bytes(4 * 2048)));                      // None
  EXPECT_FALSE(sound(Bytes(good.begin(), good.end() - 1)));  // odd: as a masked one
  EXPECT_FALSE(sound({}));
}

}  // namespace
}  // namespace crowdsurf::worker
