// Masks of coordinates, and the bytes of a chunk that a mask does not cover whole.
#include "worker/core/vector/masked_chunk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

constexpr auto kInput = MaskedForm::kInput;
constexpr auto kResult = MaskedForm::kResult;

TEST(CoordinateMaskTest, WhatIsNoMaskIsRefused) {
  EXPECT_TRUE(CoordinateMask::Of({}, 0));
  EXPECT_TRUE(CoordinateMask::Of({{0, 10}}, 10));
  EXPECT_FALSE(CoordinateMask::Of({{0, 11}}, 10)) << "beyond the vector";
  EXPECT_FALSE(CoordinateMask::Of({{11, 1}}, 10)) << "beyond the vector";
  EXPECT_FALSE(CoordinateMask::Of({{9, UINT64_MAX}}, 10)) << "an end that overflows";
  EXPECT_FALSE(CoordinateMask::Of({{3, 0}}, 10)) << "empty";
  EXPECT_FALSE(CoordinateMask::Of({{4, 2}, {1, 2}}, 10)) << "not ascending";
  EXPECT_FALSE(CoordinateMask::Of({{1, 3}, {3, 2}}, 10)) << "overlapping";
  EXPECT_FALSE(CoordinateMask::Of(std::vector<Extent>(kMaxMaskExtents + 1), 10)) << "too many";
}

TEST(CoordinateMaskTest, AChunkSeesItsPartAndWholeOnesNothing) {
  const auto mask = CoordinateMask::Of({{2, 3}, {5, 5}, {20, 80}}, 100);
  ASSERT_TRUE(mask);
  EXPECT_EQ(mask->end(), 100u);
  EXPECT_EQ(mask->Within(0, 4), (ChunkExtents{{2, 2}}));
  EXPECT_EQ(mask->Within(0, 30), (ChunkExtents{{2, 8}, {20, 10}})) << "what touches is joined";
  EXPECT_EQ(mask->Within(4, 6), std::nullopt) << "covered whole";
  EXPECT_EQ(mask->Within(10, 10), ChunkExtents{});
  EXPECT_EQ(mask->Within(0, 0), std::nullopt);
  EXPECT_EQ(CoordinateMask().Within(0, 7), std::nullopt);
  EXPECT_EQ(CoordinateMask::Of({}, 100)->Within(0, 7), ChunkExtents{});
  EXPECT_FALSE(CoordinateMask::Of({}, 100)->whole());
  EXPECT_TRUE(CoordinateMask::Of({{0, 30}, {30, 70}}, 100)->whole());
}

template <class Scalar>
std::vector<Scalar> Ascending(size_t count) {
  std::vector<Scalar> values(count);
  std::iota(values.begin(), values.end(), Scalar{1});
  return values;
}

ChunkExtents DrawExtents(Rng& rng, uint32_t count) {
  ChunkExtents extents;
  for (uint32_t at = static_cast<uint32_t>(rng.Uniform(3)); at < count;) {
    const auto length = static_cast<uint32_t>(1 + rng.Uniform(std::min(count - at, 200u)));
    extents.push_back({at, length});
    at += length + 1 + static_cast<uint32_t>(rng.Uniform(300));
  }
  return extents;
}

// Oddness is what tells the forms from plain chunks, whatever the extents are.
TEST(MaskedChunkTest, DrawnOnesComeBackAndAreNeverAsLongAsAPlainOne) {
  Rng rng(7);
  for (int draw = 0; draw < 300; ++draw) {
    const auto count = static_cast<uint32_t>(1 + rng.Uniform(3000));
    const ChunkExtents extents = DrawExtents(rng, count);
    const auto values = Ascending<float>(count);
    for (const WireFormat wire : {WireFormat::kFloat32, WireFormat::kBFloat16}) {
      const Bytes input = EncodeMaskedInput<float>(wire, extents, values);
      ASSERT_TRUE(IsMasked(input));
      const auto read = ReadMasked(kInput, input, count);
      ASSERT_TRUE(read);
      EXPECT_EQ(read->extents, extents);
      EXPECT_EQ(MaskedIsSound<float>(kInput, wire, input, count), ElementsOf(extents) < count);
      EXPECT_FALSE(ReadMasked(kResult, input, count)) << "forms are not mixed up";
      EXPECT_FALSE(ReadMasked(kInput, input, extents.empty() ? 0 : extents.back().begin));

      const Bytes result = EncodeMaskedResult<float>(wire, extents, values);
      ASSERT_TRUE(IsMasked(result));
      EXPECT_EQ(MaskedIsSound<float>(kResult, wire, result, count), !extents.empty());
      std::vector<float> out(count);
      EXPECT_EQ(DecodeMaskedResult<float>(wire, result, out), extents);
      EXPECT_EQ(EncodeMaskedResult<float>(wire, extents, std::span<const float>(out)), result);
      for (const ChunkExtent& kept : extents)
        for (uint32_t i = kept.begin; i < kept.begin + kept.count; ++i)
          ASSERT_EQ(out[i], values[i]) << "kept values are not rounded";
    }
  }
}

TEST(MaskedChunkTest, OnlyWhatIsCoveredTravels) {
  const auto values = Ascending<float>(1000);
  const Bytes none = EncodeMaskedInput<float>(WireFormat::kFloat32, {}, values);
  EXPECT_EQ(none.size(), 3u);
  const Bytes some = EncodeMaskedInput<float>(WireFormat::kFloat16, {{5, 100}}, values);
  EXPECT_LE(some.size(), 5u + 200u);
}

// A head that is not the one way to write its extents.
TEST(MaskedChunkTest, HostileHeadsAreRefused) {
  const auto refused = [](const Bytes& bytes) { return !ReadMasked(kInput, bytes, 100); };
  EXPECT_FALSE(refused({1, 1, 4, 2, 0}));
  EXPECT_TRUE(refused({})) << "nothing";
  EXPECT_TRUE(refused({1, 1, 4, 2})) << "even: no masked chunk";
  EXPECT_TRUE(refused({3, 1, 4, 2, 0})) << "no form of ours";
  EXPECT_TRUE(refused({1, 1, 4, 2, 9})) << "a pad that says something";
  EXPECT_TRUE(refused({1, 1, 4, 0, 0})) << "an empty extent";
  EXPECT_TRUE(refused({1, 1, 99, 2, 0})) << "beyond the chunk";
  EXPECT_TRUE(refused({1, 1, 101, 1, 0})) << "beyond the chunk";
  EXPECT_TRUE(refused({1, 2, 4, 2, 0, 3, 0})) << "two that touch";
  EXPECT_TRUE(refused({1, 1, 0x84, 0x00, 2})) << "a number that is longer than it must be";
  EXPECT_TRUE(refused({1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0})) << "more extents than bytes";
  EXPECT_TRUE(refused({1, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0})) << "a number beyond 32 bits";
  EXPECT_TRUE(refused({1, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 1, 0})) << "a gap that wraps around";
  EXPECT_TRUE(refused({1, 2, 4})) << "cut off";
}

TEST(MaskedChunkTest, GarbageNeverCrashesAndIsNeverSoundWithAWrongSize) {
  Rng rng(11);
  for (int draw = 0; draw < 20'000; ++draw) {
    Bytes bytes(1 + 2 * rng.Uniform(40));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Uniform(draw % 2 == 0 ? 256 : 8));
    bytes[0] = static_cast<uint8_t>(1 + rng.Uniform(2));
    const auto form = static_cast<MaskedForm>(bytes[0]);
    const auto read = ReadMasked(form, bytes, 64);
    if (!read) continue;
    const uint64_t inside = ElementsOf(read->extents);
    ASSERT_LE(inside, 64u);
    const size_t want = form == kInput ? inside * 2 : (64 - inside) * 2 + inside * 4;
    const bool fits = read->values.size() == want;
    EXPECT_TRUE(fits || !MaskedIsSound<float>(form, WireFormat::kFloat16, bytes, 64));
  }
}

TEST(MaskedChunkTest, NotANumberIsNotSoundWhereverItIs) {
  for (const uint32_t at : {0u, 6u, 9u}) {
    auto values = Ascending<float>(10);
    values[at] = std::nanf("");
    const bool covered = at == 6;
    EXPECT_EQ(
        MaskedIsSound<float>(kInput, WireFormat::kFloat32,
                             EncodeMaskedInput<float>(WireFormat::kFloat32, {{5, 2}}, values), 10),
        !covered);
    const Bytes result = EncodeMaskedResult<float>(WireFormat::kFloat16, {{5, 2}}, values);
    EXPECT_FALSE(MaskedIsSound<float>(kResult, WireFormat::kFloat16, result, 10));
  }
}

}  // namespace
}  // namespace crowdsurf::worker
