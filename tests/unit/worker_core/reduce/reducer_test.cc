// Folds against loops written here: float32 to the bit, in rank order and never fused, doubles to
// 1e-15. And the bounds on what a reducer holds.
#include "worker/core/reduce/reducer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/digest.h"
#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kElements = 1000;
constexpr RoundHandle kRound = 7;

std::vector<ChunkSpan> TwoChunks() { return {{0, 0, 600}, {1, 600, 400}}; }
InstanceId Instance(uint8_t n) {
  std::array<uint8_t, 16> bytes{};
  bytes.fill(n);
  return InstanceId(bytes);
}

template <class Scalar>
std::vector<Scalar> Values(uint64_t seed) {
  Rng rng(seed);
  std::vector<Scalar> out(kElements);
  for (Scalar& x : out) x = static_cast<Scalar>(rng.Normal());
  return out;
}

// A member of the group: its own values, its output, its reducer.
template <class Scalar>
struct Member {
  Member(int rank, WireFormat wire) : input(Values<Scalar>(static_cast<uint64_t>(rank) + 100)) {
    reducer.Open(kRound, {Instance(1), rank, TwoChunks(), wire, input, output});
  }
  std::vector<Scalar> input, output = std::vector<Scalar>(kElements);
  Reducer<Scalar> reducer{1 << 20};
};

template <class Scalar>
struct Group {
  explicit Group(WireFormat wire, size_t members = 4) {
    for (size_t rank = 0; rank < members; ++rank) {
      all.push_back(std::make_unique<Member<Scalar>>(static_cast<int>(rank), wire));
    }
  }
  // Everybody's input of `chunk` to `owner`, last rank first: arrival order must not matter.
  void Collect(size_t owner, ChunkIndex chunk, Ballot assigned = 0) {
    for (size_t rank = all.size(); rank-- > 0;) {
      if (rank == owner) continue;
      const Bytes wire = all[rank]->reducer.OwnInput(kRound, chunk);
      ASSERT_TRUE(all[owner]->reducer.IsSound(kRound, ChunkArrived::Kind::kInput, chunk, wire));
      if (const auto lies = all[rank]->reducer.OwnInPlace(kRound, chunk)) {
        ASSERT_EQ(Bytes(lies->begin(), lies->end()), wire);
      }
      all[owner]->reducer.KeepInput(kRound, static_cast<int>(rank), chunk, assigned, wire);
    }
  }
  std::vector<std::unique_ptr<Member<Scalar>>> all;
};

TEST(ReducerTest, OnlyValuesThatTravelAsTheyLieAreGivenInPlace) {
  for (const WireFormat wire :
       {WireFormat::kFloat32, WireFormat::kFloat16, WireFormat::kBFloat16}) {
    const Member<float> member(0, wire);
    const auto lies = member.reducer.OwnInPlace(kRound, ChunkIndex(1));
    ASSERT_EQ(lies.has_value(), wire == WireFormat::kFloat32);
    if (!lies) continue;
    EXPECT_EQ(lies->data(), reinterpret_cast<const uint8_t*>(member.input.data() + 600));
  }
}

// A long chunk is folded in blocks: the bits are those of any shorter ones.
TEST(ReducerTest, BlocksMakeNoDifferenceToAFold) {
  constexpr size_t kCount = 10'001, kPart = 77;
  const std::vector<double> weights = {3, 0, 0.5};
  for (const WireFormat wire :
       {WireFormat::kFloat32, WireFormat::kFloat16, WireFormat::kBFloat16}) {
    const size_t width = WireWidth<float>(wire);
    std::vector<Bytes> encoded;
    for (uint64_t rank = 0; rank < weights.size(); ++rank) {
      Rng rng(rank);
      std::vector<float> values(kCount);
      for (float& value : values) value = static_cast<float>(rng.Normal());
      encoded.emplace_back(kCount * width);
      EncodeWire(wire, std::span<const float>(values), encoded.back());
    }
    const auto fold = [&](size_t begin, std::span<float> out) {
      std::vector<ByteView> inputs;
      for (const Bytes& input : encoded)
        inputs.push_back(ByteView(input).subspan(begin * width, out.size() * width));
      FoldInputs<float>(wire, RankSet::FromBits(0b111), weights, inputs, out);
    };
    std::vector<float> whole(kCount), parts(kCount);
    fold(0, whole);
    for (size_t begin = 0; begin < kCount; begin += kPart)
      fold(begin, std::span(parts).subspan(begin, std::min(kPart, kCount - begin)));
    EXPECT_EQ(std::memcmp(whole.data(), parts.data(), kCount * sizeof(float)), 0);
  }
}

TEST(ReducerTest, FoldIsTheSumInRankOrderTimesTheReciprocal) {
  Group<float> group(WireFormat::kFloat32);
  group.Collect(0, ChunkIndex(0));
  const std::vector<double> weights = {3, 1, 0, 7};
  group.all[0]->reducer.Fold(kRound, {ChunkIndex(0), 0, RankSet::FromBits(0b1111), weights});
  for (size_t i = 0; i < 600; ++i) {
    volatile float sum = 0;  // scaled by 2^-2, which is exact
    for (size_t rank = 0; rank < 4; ++rank) {
      volatile float product = static_cast<float>(weights[rank] / 4) * group.all[rank]->input[i];
      sum = sum + product;
    }
    const float want = sum * static_cast<float>(1.0 / (11.0 / 4));
    ASSERT_EQ(std::bit_cast<uint32_t>(group.all[0]->output[i]), std::bit_cast<uint32_t>(want)) << i;
  }
}

TEST(ReducerTest, DoubleFoldIsTheWeightedMean) {
  Group<double> group(WireFormat::kFloat32);
  group.Collect(1, ChunkIndex(1));
  group.all[1]->reducer.Fold(kRound,
                             {ChunkIndex(1), 0, RankSet::FromBits(0b1011), {2, 5, 100, 0.5}});
  for (size_t i = 600; i < kElements; ++i) {
    const double want =
        (2 * group.all[0]->input[i] + 5 * group.all[1]->input[i] + 0.5 * group.all[3]->input[i]) /
        7.5;
    EXPECT_NEAR(group.all[1]->output[i], want, 1e-15);
  }
}

TEST(ReducerTest, AllWeightsZeroGiveThePlainMean) {
  Group<double> group(WireFormat::kFloat32, 3);
  group.Collect(0, ChunkIndex(0));
  group.all[0]->reducer.Fold(kRound, {ChunkIndex(0), 0, RankSet::FromBits(0b111), {0, 0, 0}});
  for (size_t i = 0; i < 600; ++i) {
    const double want =
        (group.all[0]->input[i] + group.all[1]->input[i] + group.all[2]->input[i]) / 3;
    EXPECT_NEAR(group.all[0]->output[i], want, 1e-15);
  }
}

TEST(ReducerTest, HugeAndTinyWeightsNeitherOverflowNorVanish) {
  for (const double size : {1e300, 1e-300}) {
    Group<float> group(WireFormat::kFloat32, 2);
    group.Collect(0, ChunkIndex(0));
    group.all[0]->reducer.Fold(kRound,
                               {ChunkIndex(0), 0, RankSet::FromBits(0b11), {size, 3 * size}});
    for (size_t i = 0; i < 600; ++i) {
      const double want = (static_cast<double>(group.all[0]->input[i]) +
                           3.0 * static_cast<double>(group.all[1]->input[i])) /
                          4;
      EXPECT_NEAR(group.all[0]->output[i], want, 1e-6);
    }
  }
}

TEST(ReducerTest, EverybodyEndsWithTheBitsOfTheOwnerInEveryFormat) {
  for (const WireFormat wire :
       {WireFormat::kFloat32, WireFormat::kFloat16, WireFormat::kBFloat16}) {
    Group<float> group(wire);
    for (const ChunkIndex chunk : {ChunkIndex(0), ChunkIndex(1)}) {
      group.Collect(chunk.value(), chunk);
      Reducer<float>& owner = group.all[chunk.value()]->reducer;
      const uint64_t hash = owner.Fold(kRound, {chunk, 0, RankSet::FromBits(0b1111), {1, 2, 3, 4}});
      const SharedBytes result = owner.Result(kRound, chunk);
      EXPECT_EQ(ContentHash(*result, ContentKey(Instance(1))), hash);
      const auto lies = owner.ResultInPlace(kRound, chunk);
      ASSERT_EQ(lies.has_value(), wire == WireFormat::kFloat32);
      if (lies) {
        EXPECT_EQ(Bytes(lies->begin(), lies->end()), *result);
      }
      for (auto& member : group.all) {
        if (member == group.all[chunk.value()]) continue;
        ASSERT_TRUE(member->reducer.IsSound(kRound, ChunkArrived::Kind::kResult, chunk, *result));
        member->reducer.StoreResult(kRound, chunk, *result);
        EXPECT_EQ(*member->reducer.Result(kRound, chunk), *result);  // re-served verbatim
      }
    }
    for (auto& member : group.all) EXPECT_EQ(member->output, group.all[0]->output);
  }
}

TEST(ReducerTest, ALookAtTheBytesIsBelievedWhereItIsOfTheFormat) {
  const auto sound = [](WireFormat wire, size_t bytes, Float32Look look) {
    const Member<float> member(0, wire);
    return member.reducer.IsSound(kRound, ChunkArrived::Kind::kInput, ChunkIndex(1), Bytes(bytes),
                                  look);
  };
  const size_t whole = 400 * sizeof(float);
  EXPECT_TRUE(sound(WireFormat::kFloat32, whole, Float32Look::kFinite));
  EXPECT_FALSE(sound(WireFormat::kFloat32, whole, Float32Look::kNotFinite));
  EXPECT_TRUE(sound(WireFormat::kFloat32, whole, Float32Look::kNone));
  EXPECT_FALSE(sound(WireFormat::kFloat32, whole + 4, Float32Look::kFinite));
  EXPECT_TRUE(sound(WireFormat::kFloat16, whole / 2, Float32Look::kNotFinite));
  EXPECT_FALSE(sound(WireFormat::kFloat16, whole, Float32Look::kFinite));
}

TEST(ReducerTest, AnotherRankOrderGivesOtherBits) {  // the fault that the order rule prevents
  const auto a = Values<float>(1), b = Values<float>(2), c = Values<float>(3);
  const auto view = [](const std::vector<float>& v) {
    return ByteView(reinterpret_cast<const uint8_t*>(v.data()), v.size() * 4);
  };
  std::vector<float> straight(kElements), turned(kElements);
  const RankSet all = RankSet::FromBits(0b111);
  FoldInputs<float>(WireFormat::kFloat32, all, {1, 3, 5}, {view(a), view(b), view(c)}, straight);
  FoldInputs<float>(WireFormat::kFloat32, all, {5, 3, 1}, {view(c), view(b), view(a)}, turned);
  EXPECT_NE(straight, turned);
}

// What a buffer of the pool held before must not get into any result.
TEST(ReducerTest, UsedBuffersChangeNoBit) {
  constexpr uint32_t kMany = 8192;  // at 16 bits a value, too, the pool's buffers are used
  for (const WireFormat format :
       {WireFormat::kFloat32, WireFormat::kFloat16, WireFormat::kBFloat16}) {
    std::vector<Bytes> results;
    for (const auto& pool : {std::make_shared<BytePool>(0), std::make_shared<BytePool>(1 << 20)}) {
      for (int i = 0; i < 4; ++i) pool->Give(Bytes(4 * kMany, 0xAB));
      std::vector<float> own(kMany, 1.5F), others(kMany, -0.25F), out(kMany), unused(kMany);
      Reducer<float> owner(1 << 20, pool), sender(1 << 20, pool);
      owner.Open(kRound, {Instance(1), 0, {{0, 0, kMany}}, format, own, out});
      sender.Open(kRound, {Instance(1), 1, {{0, 0, kMany}}, format, others, unused});
      owner.KeepInput(kRound, 1, ChunkIndex(0), 0, sender.OwnInput(kRound, ChunkIndex(0)));
      owner.Fold(kRound, {ChunkIndex(0), 0, RankSet::FromBits(0b11), {1, 1}});
      EXPECT_EQ(out, std::vector<float>(kMany, 0.625F));
      results.push_back(*owner.Result(kRound, ChunkIndex(0)));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(ReducerTest, AssignmentsOfAChunkAreKeptApart) {
  Group<float> group(WireFormat::kFloat32, 2);
  Reducer<float>& owner = group.all[0]->reducer;
  const Bytes honest = group.all[1]->reducer.OwnInput(kRound, ChunkIndex(0));
  owner.KeepInput(kRound, 1, ChunkIndex(0), 0, Bytes(honest.size(), 0));
  owner.KeepInput(kRound, 1, ChunkIndex(0), 3, honest);
  owner.KeepInput(kRound, 1, ChunkIndex(0), 3, Bytes(honest.size(), 0));  // a second one is ignored
  EXPECT_EQ(owner.held_bytes(), 2 * honest.size());
  owner.Fold(kRound, {ChunkIndex(0), 3, RankSet::FromBits(0b11), {1, 1}});
  EXPECT_FLOAT_EQ(group.all[0]->output[5],
                  (group.all[0]->input[5] + group.all[1]->input[5]) * 0.5f);
  EXPECT_EQ(owner.held_bytes(), honest.size());
  owner.DropInputs(kRound, ChunkIndex(0), 0);
  EXPECT_EQ(owner.held_bytes(), 0u);
}

TEST(ReducerTest, TheBoundOnHeldBytesIsHeldAndGivenBack) {
  std::vector<float> from(kElements), to(kElements);
  Reducer<float> reducer(5000);
  reducer.Open(kRound, {Instance(2), 0, TwoChunks(), WireFormat::kFloat32, from, to});
  EXPECT_TRUE(reducer.HasRoom(2400));
  reducer.KeepInput(kRound, 1, ChunkIndex(0), 0, Bytes(2400));
  reducer.KeepInput(kRound, 2, ChunkIndex(0), 0, Bytes(2400));
  EXPECT_FALSE(reducer.HasRoom(2400));
  EXPECT_EQ(reducer.Find(Instance(2)), kRound);
  EXPECT_EQ(reducer.Find(Instance(3)), std::nullopt);
  reducer.Close(kRound);
  EXPECT_EQ(reducer.held_bytes(), 0u);
  EXPECT_EQ(reducer.open_rounds(), 0u);
}

TEST(ReducerTest, BytesThatAreNoChunkAreNotSound) {
  std::vector<float> from(kElements), to(kElements);
  Reducer<float> reducer(1 << 20);
  reducer.Open(kRound, {Instance(2), 0, TwoChunks(), WireFormat::kFloat16, from, to});
  for (const auto kind : {ChunkArrived::Kind::kInput, ChunkArrived::Kind::kResult}) {
    EXPECT_TRUE(reducer.IsSound(kRound, kind, ChunkIndex(0), Bytes(1200)));
    EXPECT_FALSE(reducer.IsSound(kRound, kind, ChunkIndex(0), Bytes(1198)));
    EXPECT_FALSE(reducer.IsSound(kRound, kind, ChunkIndex(2), Bytes(1200)));
    EXPECT_FALSE(reducer.IsSound(kRound, kind, ChunkIndex(0), Bytes(1200, 0xFF)));  // NaN
  }
}

TEST(ReducerTest, ManyResultsAreReservedBeyondTheServedCache) {
  std::vector<float> from = Values<float>(5), to(kElements);
  std::vector<ChunkSpan> chunks;
  for (uint64_t i = 0; i < 100; ++i) chunks.push_back({0, i * 10, 10});
  Reducer<float> reducer(1 << 20);
  reducer.Open(kRound, {Instance(2), 0, chunks, WireFormat::kFloat16, from, to});
  std::vector<Bytes> first;
  for (uint32_t i = 0; i < 100; ++i) {
    reducer.Fold(kRound, {ChunkIndex(i), 0, RankSet::FromBits(0b1), {1}});
    first.push_back(*reducer.Result(kRound, ChunkIndex(i)));
  }
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(*reducer.Result(kRound, ChunkIndex(i)), first[i]);
}

}  // namespace
}  // namespace crowdsurf::worker
