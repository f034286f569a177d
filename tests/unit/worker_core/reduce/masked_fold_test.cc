// The fold of inputs that cover a part of the chunk each: by themselves, and through reducers.
#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/rng.h"
#include "worker/core/reduce/reducer.h"

namespace crowdsurf::worker {
namespace {

constexpr RoundHandle kRound = 7;
constexpr auto kInput = ChunkArrived::Kind::kInput;
constexpr auto kResult = ChunkArrived::Kind::kResult;
constexpr uint32_t kElements = 1000;

std::vector<ChunkSpan> TwoChunks() { return {{0, 0, 600}, {1, 600, 400}}; }

// A member of the group: its own values, of which the mask goes in, its output, its reducer.
struct Masked {
  Masked(int rank, WireFormat wire, std::optional<CoordinateMask> own) : mask(std::move(*own)) {
    Rng rng(static_cast<uint64_t>(rank) + 100);
    for (float& x : input) x = static_cast<float>(rng.Normal());
    reducer.Open(kRound, {InstanceId(), rank, TwoChunks(), wire, input, output, mask});
  }
  bool Covers(uint64_t i) const {
    const auto within = mask.Within(i, 1);
    return !within || !within->empty();
  }
  CoordinateMask mask;
  std::vector<float> input = std::vector<float>(kElements), output = input;
  Reducer<float> reducer{1 << 20};
};
using Group = std::vector<std::unique_ptr<Masked>>;

Group GroupOf(WireFormat wire, const std::vector<std::vector<Extent>>& masks) {
  Group group;
  for (const auto& mask : masks)
    group.push_back(std::make_unique<Masked>(static_cast<int>(group.size()), wire,
                                             CoordinateMask::Of(mask, kElements)));
  return group;
}

// Rank `owner` reduces the chunk from those in `mask`, and everybody stores the result.
void Reduce(Group& group, size_t owner, ChunkIndex chunk, RankSet mask,
            const std::vector<double>& weights, Ballot assigned = 0) {
  Reducer<float>& reducer = group[owner]->reducer;
  for (size_t rank = group.size(); rank-- > 0;) {
    if (rank == owner || !mask.Contains(rank)) continue;
    const Bytes wire = group[rank]->reducer.OwnInput(kRound, chunk);
    ASSERT_TRUE(reducer.IsSound(kRound, kInput, chunk, wire));
    reducer.KeepInput(kRound, static_cast<int>(rank), chunk, assigned, wire);
  }
  const uint64_t hash = reducer.Fold(kRound, {chunk, assigned, mask, weights});
  const SharedBytes result = reducer.Result(kRound, chunk);
  EXPECT_EQ(ContentHash(*result, ContentKey(InstanceId())), hash);
  EXPECT_EQ(reducer.held_bytes(), 0u);
  for (size_t rank = 0; rank < group.size(); ++rank) {
    if (rank == owner) continue;
    ASSERT_TRUE(group[rank]->reducer.IsSound(kRound, kResult, chunk, *result));
    group[rank]->reducer.StoreResult(kRound, chunk, *result);
    EXPECT_EQ(*group[rank]->reducer.Result(kRound, chunk), *result);  // re-served verbatim
    ASSERT_EQ(group[rank]->output, group[owner]->output);
  }
}

// Masks that share nothing: the result is everybody's values side by side, to the bit, whatever
// the weights, as they travelled; what nobody has is the owner's own value, not rounded.
TEST(MaskedFoldTest, DisjointMasksAreConcatenated) {
  for (const WireFormat wire : {WireFormat::kFloat32, WireFormat::kFloat16}) {
    Group group = GroupOf(wire, {{{0, 100}, {500, 300}}, {{100, 399}}, {{499, 1}, {800, 150}}});
    Reduce(group, 0, ChunkIndex(0), RankSet::FromBits(0b111), {3, 0.7, 0});
    Reduce(group, 1, ChunkIndex(1), RankSet::FromBits(0b111), {3, 0.7, 0});
    for (uint32_t i = 0; i < kElements; ++i) {
      float want = group[i < 600 ? 0 : 1]->input[i];
      for (const auto& member : group) {
        if (!member->Covers(i)) continue;
        Bytes travelled(WireWidth<float>(wire));
        EncodeWire(wire, std::span<const float>(&member->input[i], 1), travelled);
        DecodeWire(wire, travelled, std::span<float>(&want, 1));
      }
      ASSERT_EQ(group[0]->output[i], want) << i;
    }
  }
}

// sum of w m x / sum of w m, coordinate by coordinate in double.
TEST(MaskedFoldTest, OverlappingMasksGiveTheClosedForm) {
  Rng rng(5);
  for (int draw = 0; draw < 20; ++draw) {
    std::vector<std::vector<Extent>> masks(4);
    for (auto& mask : masks)
      for (uint64_t at = rng.Uniform(20); at < kElements;) {
        const uint64_t length = 1 + rng.Uniform(std::min<uint64_t>(kElements - at, 60));
        mask.push_back({at, length});
        at += length + 1 + rng.Uniform(90);
      }
    Group group = GroupOf(WireFormat::kFloat32, masks);
    std::vector<double> weights(4);
    for (double& weight : weights) weight = static_cast<double>(rng.Uniform(5));
    Reduce(group, 0, ChunkIndex(0), RankSet::FromBits(0b1011), weights);  // rank 2 was lost
    for (uint32_t i = 0; i < 600; ++i) {
      double sum = 0, weight = 0, plain = 0, covering = 0;
      for (const size_t rank : {0U, 1U, 3U}) {
        if (!group[rank]->Covers(i)) continue;
        const double x = static_cast<double>(group[rank]->input[i]);
        sum += weights[rank] * x, weight += weights[rank], plain += x, covering += 1;
      }
      const double want = covering == 0 ? static_cast<double>(group[0]->input[i])  // the old value
                          : weight > 0  ? sum / weight
                                        : plain / covering;
      ASSERT_NEAR(group[0]->output[i], want, covering < 2 ? 0 : 1e-6) << i;
    }
  }
}

// A mask that covers all, and no mask at all, are the same bytes and the same bits.
TEST(MaskedFoldTest, FullMasksAreTheUnmaskedRound) {
  const std::vector<double> weights = {3, 1, 0.7};
  for (const WireFormat wire : {WireFormat::kFloat32, WireFormat::kFloat16}) {
    const std::vector<Extent> all = {{0, 400}, {400, 600}};
    Group masked = GroupOf(wire, {all, all, all});
    Group plain;
    for (int rank = 0; rank < 3; ++rank)
      plain.push_back(std::make_unique<Masked>(rank, wire, CoordinateMask()));
    for (const ChunkIndex chunk : {ChunkIndex(0), ChunkIndex(1)}) {
      EXPECT_EQ(masked[2]->reducer.OwnInput(kRound, chunk),
                plain[2]->reducer.OwnInput(kRound, chunk));
      Reduce(masked, chunk.value(), chunk, RankSet::FromBits(0b111), weights);
      Reduce(plain, chunk.value(), chunk, RankSet::FromBits(0b111), weights);
      EXPECT_EQ(*masked[0]->reducer.Result(kRound, chunk),
                *plain[0]->reducer.Result(kRound, chunk));
    }
    EXPECT_EQ(masked[0]->output, plain[0]->output);
  }
}

// The walk over extents is the plain fold where all cover: the same bits, though one of the inputs
// is masked and so takes the other way.
TEST(MaskedFoldTest, WhereAllCoverTheBitsAreThoseOfTheUnmaskedFold) {
  const std::vector<double> weights = {3, 1, 0.7};
  Group masked = GroupOf(WireFormat::kFloat16, {{{0, 1000}}, {{0, 599}}, {{0, 1000}}});
  Group plain = GroupOf(WireFormat::kFloat16, {{{0, 1000}}, {{0, 1000}}, {{0, 1000}}});
  Reduce(masked, 0, ChunkIndex(0), RankSet::FromBits(0b111), weights);
  Reduce(plain, 0, ChunkIndex(0), RankSet::FromBits(0b111), weights);
  masked[0]->output[599] = plain[0]->output[599];
  EXPECT_EQ(masked[0]->output, plain[0]->output);
}

// Weights so far apart that some would vanish beside another: they decide where they are alone.
TEST(MaskedFoldTest, ATinyWeightIsWholeWhereItIsAlone) {
  Group group = GroupOf(WireFormat::kFloat32, {{{0, 300}}, {{300, 300}}, {{300, 300}}});
  Reduce(group, 0, ChunkIndex(0), RankSet::FromBits(0b111), {1e300, 1e-300, 3e-300});
  for (uint32_t i = 300; i < 600; ++i)
    ASSERT_NEAR(group[0]->output[i], (group[1]->input[i] + 3 * group[2]->input[i]) / 4, 1e-6) << i;
}

// A repair reduces the chunk again at another member, from the inputs with their masks; then its
// old values are those that stay.
TEST(MaskedFoldTest, ReducedAgainElsewhereTheMasksAreTheSame) {
  Group group = GroupOf(WireFormat::kFloat32, {{{0, 200}}, {{200, 200}}, {{400, 100}}});
  Reduce(group, 0, ChunkIndex(0), RankSet::FromBits(0b111), {1, 1, 1});
  Reduce(group, 1, ChunkIndex(0), RankSet::FromBits(0b110), {1, 1, 1}, 5);
  for (uint32_t i = 0; i < 600; ++i)
    ASSERT_EQ(group[2]->output[i], group[i >= 400 && i < 500 ? 2 : 1]->input[i]) << i;
}

// Also when its mask covers the chunk and nobody else is left.
TEST(MaskedFoldTest, WhoIsAloneInAChunkKeepsItsValues) {
  Group group = GroupOf(WireFormat::kFloat32, {{{0, 700}}, {{700, 300}}});
  Reduce(group, 0, ChunkIndex(0), RankSet::FromBits(0b01), {0.7, 1});
  for (uint32_t i = 0; i < 600; ++i) ASSERT_EQ(group[1]->output[i], group[0]->input[i]) << i;
}

TEST(MaskedFoldTest, ChunksOfTheOtherKindAreNotSound) {
  Group group = GroupOf(WireFormat::kFloat32, {{{0, 200}}, {{450, 100}}});
  const Bytes input = group[1]->reducer.OwnInput(kRound, ChunkIndex(0));
  EXPECT_FALSE(group[0]->reducer.IsSound(kRound, kResult, ChunkIndex(0), input));
  EXPECT_FALSE(group[0]->reducer.IsSound(kRound, kInput, ChunkIndex(1), input))
      << "another chunk's size";
  Reduce(group, 0, ChunkIndex(0), RankSet::FromBits(0b11), {1, 1});
  const SharedBytes result = group[0]->reducer.Result(kRound, ChunkIndex(0));
  EXPECT_TRUE(IsMasked(*result));
  EXPECT_FALSE(group[1]->reducer.IsSound(kRound, kInput, ChunkIndex(0), *result));
}

}  // namespace
}  // namespace crowdsurf::worker
