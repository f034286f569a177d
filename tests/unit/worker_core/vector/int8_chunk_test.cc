// Int8 chunks on every instruction set of this machine: against a search for the nearest value and
// scalar loops, both in doubles; and bytes of others, of which only what the encoder can give is
// sound.
#include "worker/core/vector/int8_chunk.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "tests/unit/worker_core/vector/every_target.h"
#include "worker/core/vector/kernels.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kSizes[] = {0, 1, 2, 3, 7, 64, 1000, 1023, 1024, 1025, 2048, 5001};

Bytes Encoded(const std::vector<float>& values) {
  Bytes out(Int8Bytes(values.size()), 0xAB);
  ToInt8(values, out);
  return out;
}
std::vector<float> Decoded(ByteView wire, size_t count) {
  std::vector<float> out(count, 1e9f);
  FromInt8(wire, out);
  return out;
}
// Values of all sizes side by side.
std::vector<float> Values(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(count);
  for (float& x : out)
    x = static_cast<float>(std::ldexp(rng.Normal(), static_cast<int>(rng.Uniform(12)) - 6));
  return out;
}

// Where the layout has the scale of block `i`, and its values.
size_t ScaleAt(size_t block) { return 4 + block * (4 + kInt8Block); }
float ScaleOf(const Bytes& wire, size_t block) {
  float scale;
  std::memcpy(&scale, wire.data() + ScaleAt(block), 4);
  return scale;
}
void SetScale(Bytes& wire, size_t block, uint32_t bits) {
  std::memcpy(wire.data() + ScaleAt(block), &bits, 4);
}

TEST(Int8ChunkTest, AValueIsAByteAndABlockHasAScaleMore) {
  EXPECT_EQ(Int8Bytes(0), 0u);
  EXPECT_EQ(Int8Bytes(1), 10u);  // the mark, a scale, a value, even
  EXPECT_EQ(Int8Bytes(1024), 4u + 4 + 1024);
  EXPECT_EQ(Int8Bytes(1025), 4u + 4 + 1024 + 4 + 1 + 1);
  EXPECT_LT(static_cast<double>(Int8Bytes(32768)) / (4 * 32768), .2515);
}

TEST(Int8ChunkTest, EachValueIsTheNearestOfItsBlock) {
  OnEveryTarget([] {
    for (const size_t count : kSizes) {
      const std::vector<float> values = Values(count, count + 1);
      const Bytes wire = Encoded(values);
      const std::vector<float> back = Decoded(wire, count);
      for (size_t i = 0; i < count; ++i) {
        const size_t block = i / kInt8Block;
        const double scale = ScaleOf(wire, block);
        double largest = 0;
        for (size_t j = block * kInt8Block; j < std::min(count, (block + 1) * kInt8Block); ++j)
          largest = std::max(largest, std::fabs(static_cast<double>(values[j])));
        ASSERT_GE(scale, largest / 127 * (1 - 0x1p-23));
        ASSERT_LE(scale, largest / 127 * (1 + 0x1p-15));
        double nearest = 1e300;
        for (int q = -127; q <= 127; ++q)
          nearest = std::min(nearest, std::fabs(static_cast<double>(values[i]) - q * scale));
        const double error = std::fabs(static_cast<double>(values[i]) - back[i]);
        ASSERT_LE(error, nearest + scale * 0x1p-17) << i;
        ASSERT_LE(error, scale * (.5 + 0x1p-17)) << i;
      }
    }
  });
}

TEST(Int8ChunkTest, TiesGoToTheEvenOne) {
  OnEveryTarget([] {
    // The scale is 1.
    const std::vector<float> wire = Decoded(Encoded({127, .5f, 1.5f, 2.5f, -.5f, -1.5f, -2.5f}), 7);
    EXPECT_EQ(wire, (std::vector<float>{127, 0, 2, 2, 0, -2, -2}));
  });
}

TEST(Int8ChunkTest, EveryInstructionSetGivesTheSameBytesAndSums) {
  const std::vector<float> values = Values(5001, 77), before = Values(5001, 78);
  Bytes first;
  std::vector<float> sums;
  OnEveryTarget([&] {
    const Bytes wire = Encoded(values);
    std::vector<float> acc = before;
    AddWeightedInt8(.3f, wire, acc);
    if (first.empty()) first = wire, sums = acc;
    EXPECT_EQ(wire, first);
    EXPECT_EQ(acc, sums);
    const std::vector<float> back = Decoded(wire, values.size());
    for (size_t i = 0; i < acc.size(); ++i) {
      volatile float product = .3f * back[i];
      const float want = before[i] + product;
      ASSERT_EQ(std::bit_cast<uint32_t>(acc[i]), std::bit_cast<uint32_t>(want)) << i;
    }
  });
}

TEST(Int8ChunkTest, EncodingWhatWasDecodedGivesTheSameBytesAtAnyScale) {
  OnEveryTarget([] {
    Rng rng(5);
    for (int exponent = -140; exponent <= 127; ++exponent) {
      std::vector<float> values(1100);
      for (float& x : values) x = static_cast<float>(std::ldexp(rng.Normal() / 8, exponent));
      const Bytes wire = Encoded(values);
      ASSERT_TRUE(Int8IsSound(wire, values.size())) << exponent;
      ASSERT_EQ(Encoded(Decoded(wire, values.size())), wire) << exponent;
    }
  });
}

TEST(Int8ChunkTest, WhatIsNotFiniteIsHeld) {
  OnEveryTarget([] {
    const float inf = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const size_t count : {2u, 40u}) {  // in the tail, and in whole vectors
      std::vector<float> values(count, 0);
      values[0] = -inf, values[1] = nan;
      const Bytes wire = Encoded(values);
      ASSERT_TRUE(Int8IsSound(wire, count));
      const std::vector<float> back = Decoded(wire, count);
      EXPECT_TRUE(std::isfinite(back[0]));
      EXPECT_LT(back[0], -FLT_MAX * (1 - 0x1p-15f));
      EXPECT_EQ(back[1], 0);
      values[0] = FLT_MAX, values[1] = FLT_MAX / 127;
      EXPECT_TRUE(std::isfinite(Decoded(Encoded(values), count)[0]));
      EXPECT_EQ(Encoded(Decoded(Encoded(values), count)), Encoded(values));
    }
  });
}

TEST(Int8ChunkTest, ABlockOfTinyValuesIsZeros) {
  OnEveryTarget([] {
    const std::vector<float> zeros(30, 0);
    EXPECT_EQ(Decoded(Encoded(std::vector<float>(30, FLT_MIN * 126)), 30), zeros);
    EXPECT_EQ(Decoded(Encoded(std::vector<float>(30, FLT_TRUE_MIN)), 30), zeros);
    EXPECT_EQ(Decoded(Encoded(std::vector<float>(30, FLT_MIN * 127)), 30),
              std::vector<float>(30, FLT_MIN * 127));
  });
}

TEST(Int8ChunkTest, OneLargeValueCostsItsOwnBlockOnly) {
  std::vector<float> values = Values(3000, 9);
  const std::vector<float> before = Decoded(Encoded(values), 3000);
  values[1500] = 1e6f;
  const std::vector<float> after = Decoded(Encoded(values), 3000);
  for (size_t i = 0; i < 3000; ++i) {
    if (i / kInt8Block != 1500 / kInt8Block) {
      ASSERT_EQ(after[i], before[i]);
    }
  }
}

// ---- dither

Bytes Dithered(uint32_t key, const std::vector<float>& values, uint64_t first = 0) {
  Bytes out(Int8Bytes(values.size()), 0xAB);
  ToInt8Dithered({key, first}, values, out);
  return out;
}

TEST(Int8ChunkTest, WithDitherTheErrorIsNothingInTheMean) {
  constexpr int kKeys = 4000;
  OnEveryTarget([] {
    const std::vector<float> values = Values(1500, 21);
    std::vector<double> sum(values.size(), 0);
    for (int key = 0; key < kKeys; ++key) {
      const Bytes wire = Dithered(static_cast<uint32_t>(key), values);
      ASSERT_TRUE(Int8IsSound(wire, values.size()));
      const std::vector<float> back = Decoded(wire, values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const double scale = ScaleOf(wire, i / kInt8Block);
        ASSERT_LT(std::fabs(back[i] - static_cast<double>(values[i])), scale * (1 + 0x1p-15));
        sum[i] += back[i];
      }
    }
    const Bytes wire = Encoded(values);
    for (size_t i = 0; i < values.size(); ++i) {
      const double scale = ScaleOf(wire, i / kInt8Block);
      // Five standard deviations of a mean of steps that are at most half a scale off; those beyond
      // 126.5 steps are not dithered.
      const double bound = std::fabs(values[i]) > 126.4 * scale ? .5 : 5 * .5 / std::sqrt(kKeys);
      EXPECT_NEAR(sum[i] / kKeys, values[i], scale * bound) << i;
    }
  });
}

TEST(Int8ChunkTest, DitherMovesNothingThatIsOnAStep) {
  OnEveryTarget([] {
    for (const size_t count : {7u, 1025u}) {
      const Bytes wire = Encoded(Values(count, 22));
      const std::vector<float> values = Decoded(wire, count);
      for (uint32_t key = 0; key < 300; ++key) ASSERT_EQ(Dithered(key, values, key), wire);
    }
    // All 255 of them.
    std::vector<float> steps;
    for (int q = -127; q <= 127; ++q) steps.push_back(static_cast<float>(q));
    for (uint32_t key = 0; key < 2000; ++key)
      ASSERT_EQ(Decoded(Dithered(key, steps), steps.size()), steps);
  });
}

TEST(Int8ChunkTest, DitherIsOfThePlaceAndTheKeyAlone) {
  const std::vector<float> values = Values(3000, 23);
  const std::vector<float> end(values.begin() + 1024, values.end());
  Bytes first;
  OnEveryTarget([&] {
    const Bytes wire = Dithered(7, values);
    if (first.empty()) first = wire;
    EXPECT_EQ(wire, first);
    EXPECT_NE(Dithered(8, values), first);
    // The same values of a later chunk of the same vector: the same bytes but for the mark.
    const Bytes later = Dithered(7, end, 1024);
    EXPECT_TRUE(std::equal(later.begin() + 4, later.end(), wire.begin() + 4 + 4 + 1024));
  });
}

// ---- bytes of others

TEST(Int8ChunkTest, OnlyWhatTheEncoderCanGiveIsSound) {
  OnEveryTarget([] {
    for (const size_t count : {7u, 1025u, 2048u}) {
      const Bytes good = Encoded(Values(count, count));
      const size_t last = (count - 1) / kInt8Block;
      const auto q = [&](Bytes& wire, size_t i) -> uint8_t& { return wire[ScaleAt(0) + 4 + i]; };
      ASSERT_TRUE(Int8IsSound(good, count));
      EXPECT_FALSE(Int8IsSound(good, count - 3));
      EXPECT_FALSE(Int8IsSound(good, count + 1025));
      EXPECT_FALSE(Int8IsSound(ByteView(good).first(good.size() - 1), count));
      EXPECT_FALSE(Int8IsSound({}, count));
      for (const uint32_t scale : {0x7FC00000u, 0x7F800000u, 0x3F800001u, 0xBF800000u, 0x80000000u,
                                   0x00000080u, 0x00400000u, 0x7C010280u, 0x3F800040u, 0u}) {
        Bytes bad = good;
        SetScale(bad, last, scale);
        EXPECT_FALSE(Int8IsSound(bad, count)) << std::hex << scale;
      }
      for (size_t i = 0; i < 4; ++i) {
        Bytes bad = good;
        bad[i] = 0xFE;
        EXPECT_FALSE(Int8IsSound(bad, count));
      }
      Bytes bad = good;
      q(bad, 3) = 0x80;  // -128
      EXPECT_FALSE(Int8IsSound(bad, count));
      bad = good;  // a scale that is too large for its values
      for (size_t i = 0; i < std::min(count, kInt8Block); ++i) q(bad, i) = 126;
      EXPECT_FALSE(Int8IsSound(bad, count));
      q(bad, 5) = 0x81;  // -127
      EXPECT_TRUE(Int8IsSound(bad, count));
      if (count % 2 == 1) {
        bad = good;
        bad.back() = 1;
        EXPECT_FALSE(Int8IsSound(bad, count));
      }
    }
    EXPECT_TRUE(Int8IsSound({}, 0));
    EXPECT_FALSE(Int8IsSound(Bytes(4, 0xFF), 0));
  });
}

// So a holder of the values of sound bytes can serve those bytes.
TEST(Int8ChunkTest, SoundBytesComeBackFromTheirValues) {
  OnEveryTarget([] {
    Rng rng(13);
    int sound = 0;
    for (int trial = 0; trial < 2000; ++trial) {
      const size_t count = 1 + rng.Uniform(40);
      Bytes wire = Encoded(Values(count, rng.Next()));
      // A few bytes of it are somebody's own.
      for (uint64_t i = rng.Uniform(4); i > 0; --i)
        wire[rng.Uniform(wire.size())] = static_cast<uint8_t>(rng.Uniform(256));
      if (!Int8IsSound(wire, count)) continue;
      ++sound;
      const std::vector<float> values = Decoded(wire, count);
      for (const float x : values) ASSERT_TRUE(std::isfinite(x));
      ASSERT_EQ(Encoded(values), wire);
    }
    EXPECT_GT(sound, 400);
    EXPECT_LT(sound, 1900);
  });
}

TEST(Int8ChunkTest, NoOtherFormatTakesItForItsOwn) {
  for (size_t count = 1; count < 3000; ++count) {
    const Bytes wire = Encoded(Values(count, count));
    if (wire.size() == 2 * count) {
      EXPECT_FALSE(AllFiniteFloat16(wire));
      EXPECT_FALSE(AllFiniteBFloat16(wire));
    }
    if (wire.size() == 4 * count) {
      EXPECT_FALSE(AllFiniteFloat32(wire));
    }
    EXPECT_EQ(wire.size() % 2, 0u);
  }
}

}  // namespace
}  // namespace crowdsurf::worker
