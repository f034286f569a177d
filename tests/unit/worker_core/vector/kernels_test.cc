// Kernels on every instruction set of this machine: against a search by the formats' definition in
// IEEE 754, and against scalar loops that do not fuse.
#include "worker/core/vector/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "tests/unit/worker_core/vector/every_target.h"

namespace crowdsurf::worker {
namespace {

uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
ByteView Wire(const std::vector<float>& x) {
  return {reinterpret_cast<const uint8_t*>(x.data()), x.size() * 4};
}
Bytes Words(const std::vector<uint16_t>& words) {
  Bytes out(words.size() * 2);
  if (!words.empty()) std::memcpy(out.data(), words.data(), out.size());
  return out;
}
std::vector<uint16_t> FromBytes(const Bytes& bytes) {
  std::vector<uint16_t> out(bytes.size() / 2);
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// A 16-bit format by its definition in IEEE 754: sign, exponent with bias, fraction.
struct Format {
  int exponent_bits, fraction_bits;
  double Value(uint16_t word) const {
    const int exponent = word >> fraction_bits & ((1 << exponent_bits) - 1);
    const int fraction = word & ((1 << fraction_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                           : std::ldexp(fraction + (1 << fraction_bits),
                                                        exponent - bias - fraction_bits);
    return word & 0x8000 ? -magnitude : magnitude;
  }
  uint16_t Largest() const {  // finite, positive
    return static_cast<uint16_t>((((1 << exponent_bits) - 1) << fraction_bits) - 1);
  }
  // Nearest by search over all finite words; ties to the even word; too large is held.
  uint16_t Nearest(float x) const {
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const double magnitude = std::fabs(static_cast<double>(x));
    uint16_t low = 0, high = Largest();  // positive words are ordered as their values
    if (magnitude >= Value(high)) return sign | high;
    while (high - low > 1) {
      const auto middle = static_cast<uint16_t>((low + high) / 2);
      (Value(middle) <= magnitude ? low : high) = middle;
    }
    const double down = magnitude - Value(low), up = Value(high) - magnitude;
    if (down != up) return sign | (down < up ? low : high);
    return sign | (low % 2 == 0 ? low : high);
  }
};
constexpr Format kHalf{5, 10};
constexpr Format kBrain{8, 7};

// Every word of the format, the ties between neighbours and what lies just beside them, and random
// floats of all magnitudes.
std::vector<float> Interesting(const Format& format, Rng rng) {
  std::vector<float> out;
  for (uint32_t word = 0; word < format.Largest(); ++word) {
    const double here = format.Value(static_cast<uint16_t>(word));
    const double next = format.Value(static_cast<uint16_t>(word + 1));
    const float tie = static_cast<float>((here + next) / 2);
    const float all[] = {static_cast<float>(here), tie, std::nextafterf(tie, 0),
                         std::nextafterf(tie, std::numeric_limits<float>::infinity())};
    for (const float x : all) {
      out.push_back(x);
      out.push_back(-x);
    }
  }
  while (out.size() % 8 != 5) out.push_back(1.0f);  // a tail
  for (int i = 0; i < 100'000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    if (std::isfinite(x)) out.push_back(x);
  }
  for (const float x : {65504.0f, 65519.0f, 65520.0f, 1e30f, 3.4028235e38f, 1e-45f, 0.0f, -0.0f}) {
    out.push_back(x);
    out.push_back(-x);
  }
  return out;
}

using Narrow = void (*)(std::span<const float>, std::span<uint8_t>);
using Widen = void (*)(ByteView, std::span<float>);

void CheckNarrow(const Format& format, Narrow narrow) {
  const std::vector<float> in = Interesting(format, Rng(1));
  std::vector<uint16_t> want;
  want.reserve(in.size());
  for (const float x : in) want.push_back(format.Nearest(x));
  OnEveryTarget([&] {
    Bytes out(in.size() * 2);
    narrow(in, out);
    const std::vector<uint16_t> got = FromBytes(out);
    for (size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(got[i], want[i]) << "of " << in[i] << " (" << std::hex << Bits(in[i]) << ")";
    }
  });
}

void CheckWiden(const Format& format, Widen widen) {
  std::vector<uint16_t> words;
  for (uint32_t word = 0; word < 0x10000; ++word) words.push_back(static_cast<uint16_t>(word));
  OnEveryTarget([&] {
    std::vector<float> out(words.size());
    widen(Words(words), out);
    for (size_t i = 0; i < words.size(); ++i) {
      if ((words[i] & 0x7FFF) <= format.Largest()) {
        ASSERT_EQ(Bits(out[i]), Bits(static_cast<float>(format.Value(words[i])))) << words[i];
      } else if ((words[i] & 0x7FFF) == format.Largest() + 1) {
        ASSERT_TRUE(std::isinf(out[i]));
        ASSERT_EQ(std::signbit(out[i]), words[i] >= 0x8000);
      } else {
        ASSERT_TRUE(std::isnan(out[i])) << words[i];
      }
    }
  });
}

TEST(KernelsTest, Float16RoundsToNearestEvenOnEveryTarget) { CheckNarrow(kHalf, ToFloat16); }
TEST(KernelsTest, BFloat16RoundsToNearestEvenOnEveryTarget) { CheckNarrow(kBrain, ToBFloat16); }
TEST(KernelsTest, Float16WidensEveryWordExactly) { CheckWiden(kHalf, FromFloat16); }
TEST(KernelsTest, BFloat16WidensEveryWordExactly) { CheckWiden(kBrain, FromBFloat16); }

TEST(KernelsTest, PublishedFloat16ValuesAreMet) {
  // IEEE 754-2019 binary16: 1, 1 + 2^-10, 65504, 2^-14, 2^-24, 1/3, and 2^-25 which ties to zero.
  const std::vector<float> in = {1.0f,          1.0009765625f,   65504.0f,      6.103515625e-5f,
                                 5.9604645e-8f, 0.333251953125f, 2.98023224e-8f};
  const std::vector<uint16_t> want = {0x3C00, 0x3C01, 0x7BFF, 0x0400, 0x0001, 0x3555, 0x0000};
  Bytes out(in.size() * 2);
  ToFloat16(in, out);
  EXPECT_EQ(FromBytes(out), want);
}

TEST(KernelsTest, InfinityAndNanStayWhatTheyAre) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> in = {inf, -inf, nan, -nan, std::bit_cast<float>(0x7F800001u)};
  OnEveryTarget([&] {
    Bytes out(in.size() * 2);
    ToFloat16(in, out);
    EXPECT_EQ(FromBytes(out), (std::vector<uint16_t>{0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7E00}));
    ToBFloat16(in, out);
    EXPECT_EQ(FromBytes(out), (std::vector<uint16_t>{0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7FC0}));
  });
}

std::vector<float> Normals(size_t count, Rng& rng) {
  std::vector<float> out(count);
  for (float& x : out) x = static_cast<float>(rng.Normal());
  return out;
}

// One input.
template <class Add>
void AddOne(Add add, float weight, ByteView x, std::span<float> acc) {
  add(std::span(&weight, 1), std::span(&x, 1), acc);
}

TEST(KernelsTest, WeightedAddEqualsTheScalarLoopForEverySizeAndTarget) {
  OnEveryTarget([] {
    Rng rng(7);
    for (size_t count = 0; count < 70; ++count) {
      const std::vector<float> x = Normals(count, rng), start = Normals(count, rng);
      Bytes half(count * 2), brain(count * 2);
      ToFloat16(x, half);
      ToBFloat16(x, brain);
      std::vector<float> by_wire[3] = {start, start, start};
      AddOne(AddWeightedFloat32, 0.7f, Wire(x), by_wire[0]);
      AddOne(AddWeightedFloat16, 0.7f, half, by_wire[1]);
      AddOne(AddWeightedBFloat16, 0.7f, brain, by_wire[2]);
      std::vector<float> widened[3] = {x, x, x};
      FromFloat16(half, widened[1]);
      FromBFloat16(brain, widened[2]);
      for (int format = 0; format < 3; ++format) {
        for (size_t i = 0; i < count; ++i) {
          volatile float product = 0.7f * widened[format][i];
          ASSERT_EQ(Bits(by_wire[format][i]), Bits(start[i] + product)) << count << " " << i;
        }
      }
    }
  });
}

// Above the number that is read side by side, too.
TEST(KernelsTest, ManyInputsAreAddedOneAfterTheOtherOnEveryTarget) {
  OnEveryTarget([] {
    Rng rng(8);
    for (size_t count = 0; count < 40; ++count) {
      for (size_t inputs = 0; inputs < 21; ++inputs) {
        std::vector<float> want = Normals(count, rng), got[3] = {want, want, want};
        std::vector<float> brain_want = want, half_want = want;
        std::vector<Bytes> halves, brains;
        std::vector<std::vector<float>> values;
        std::vector<float> weights;
        for (size_t k = 0; k < inputs; ++k) {
          weights.push_back(static_cast<float>(rng.Normal()));
          values.push_back(Normals(count, rng));
          halves.emplace_back(2 * count);
          brains.emplace_back(2 * count);
          ToFloat16(values[k], halves[k]);
          ToBFloat16(values[k], brains[k]);
          std::vector<float> half(count), brain(count);
          FromFloat16(halves[k], half);
          FromBFloat16(brains[k], brain);
          for (size_t i = 0; i < count; ++i) {
            volatile float product = weights[k] * values[k][i];
            want[i] += product;
            volatile float of_half = weights[k] * half[i];
            half_want[i] += of_half;
            volatile float of_brain = weights[k] * brain[i];
            brain_want[i] += of_brain;
          }
        }
        std::vector<ByteView> whole;
        whole.reserve(inputs);
        for (const auto& each : values) whole.push_back(Wire(each));
        AddWeightedFloat32(weights, whole, got[0]);
        AddWeightedFloat16(weights, std::vector<ByteView>(halves.begin(), halves.end()), got[1]);
        AddWeightedBFloat16(weights, std::vector<ByteView>(brains.begin(), brains.end()), got[2]);
        ASSERT_EQ(got[0], want) << inputs << " inputs of " << count;
        ASSERT_EQ(got[1], half_want) << inputs << " inputs of " << count;
        ASSERT_EQ(got[2], brain_want) << inputs << " inputs of " << count;
      }
    }
  });
}

TEST(KernelsTest, AFusedMultiplyAddWouldBeSeen) {  // the fault the test above is for
  Rng rng(7);
  const std::vector<float> x = Normals(4096, rng), start = Normals(4096, rng);
  OnEveryTarget([&] {
    std::vector<float> got = start;
    AddOne(AddWeightedFloat32, 0.7f, Wire(x), got);
    size_t differs = 0;
    for (size_t i = 0; i < x.size(); ++i) differs += got[i] != std::fma(0.7f, x[i], start[i]);
    EXPECT_GT(differs, 100u);
  });
}

TEST(KernelsTest, UnalignedWireBytesGiveTheSameBits) {
  Rng rng(9);
  const std::vector<float> x = Normals(257, rng);
  Bytes shifted(257 * sizeof(float) + 1);
  std::memcpy(shifted.data() + 1, x.data(), 257 * sizeof(float));
  OnEveryTarget([&] {
    std::vector<float> want(257), got(257);
    AddOne(AddWeightedFloat32, 1.5f, Wire(x), want);
    AddOne(AddWeightedFloat32, 1.5f, ByteView(shifted).subspan(1), got);
    EXPECT_EQ(got, want);
  });
}

TEST(KernelsTest, AChangeIsRoundedAfterEachStepOnEveryTarget) {
  OnEveryTarget([] {
    Rng rng(12);
    for (size_t count = 0; count < 70; ++count) {
      const std::vector<float> x = Normals(count, rng), base = Normals(count, rng);
      std::vector<float> rest = Normals(count, rng), without(count), with(count), want = without;
      ChangeFloats(x, base, {}, without);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(Bits(without[i]), Bits(x[i] - base[i]));
      ChangeFloats(x, base, rest, with);
      for (size_t i = 0; i < count; ++i) {
        volatile float change = x[i] - base[i];
        want[i] = change + rest[i];
      }
      ASSERT_EQ(with, want);
      ChangeFloats(x, base, rest, rest);
      ASSERT_EQ(rest, want);
    }
  });
}

TEST(KernelsTest, WhatIsLeftIsZeroWhereItIsNotFinite) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OnEveryTarget([&] {
    for (size_t count = 1; count < 40; ++count) {
      for (size_t bad = 0; bad < count; ++bad) {
        for (const auto& [c, q] : {std::pair(kLargest, -kLargest), std::pair(infinity, 1.0F),
                                   std::pair(-infinity, 0.0F), std::pair(nan, 2.0F)}) {
          std::vector<float> change(count, 3.5F), travelled(count, 1.25F), rest(count, -1);
          change[bad] = c;
          travelled[bad] = q;
          RestFloats(change, travelled, rest);
          for (size_t i = 0; i < count; ++i) ASSERT_EQ(rest[i], i == bad ? 0.0F : 2.25F);
        }
      }
    }
  });
}

TEST(KernelsTest, ScaleRoundsOnce) {
  Rng rng(11);
  const std::vector<float> x = Normals(133, rng);
  OnEveryTarget([&] {
    std::vector<float> got = x;
    Scale(1.0f / 3.0f, got);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(Bits(got[i]), Bits(x[i] * (1.0f / 3.0f)));
  });
}

TEST(KernelsTest, OneBadValueIsFoundAtEveryPlace) {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  OnEveryTarget([&] {
    for (size_t count = 1; count < 40; ++count) {
      std::vector<float> x(count, 3.0e38f);
      ASSERT_TRUE(AllFiniteFloat32(Wire(x)));
      for (size_t at = 0; at < count; ++at) {
        x[at] = bad[at % 3];
        ASSERT_FALSE(AllFiniteFloat32(Wire(x)));
        Bytes half(count * 2), brain(count * 2);
        ToFloat16(x, half);
        ToBFloat16(x, brain);
        ASSERT_FALSE(AllFiniteFloat16(half));
        ASSERT_FALSE(AllFiniteBFloat16(brain));
        x[at] = -3.0e38f;
        ToFloat16(x, half);
        ToBFloat16(x, brain);
        ASSERT_TRUE(AllFiniteFloat16(half));
        ASSERT_TRUE(AllFiniteBFloat16(brain));
      }
    }
  });
}

}  // namespace
}  // namespace crowdsurf::worker
