// Scalar: what the kernels mean, one value at a time, from the formats' definitions.
//
// Purpose: the oracle of bench_kernels, so that no one wins by doing something else. In double
// precision, without any trick of the kernels. Pure; any thread; O(values). Finite inputs, but for
// IsFinite. Source: IEEE 754-2019; docs/data-plane.md, docs/compression.md.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace crowdsurf::bench::scalar {

// A 16-bit format: sign, exponent, fraction.
struct Format {
  int exponent_bits, fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t largest() const {
    return static_cast<uint16_t>((((1 << exponent_bits) - 1) << fraction_bits) - 1);
  }
  double Value(uint16_t word) const {
    const int exponent = (word >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int fraction = word & ((1 << fraction_bits) - 1);
    const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
    const double magnitude = std::ldexp(whole, std::max(exponent, 1) - bias() - fraction_bits);
    return word & 0x8000 ? -magnitude : magnitude;
  }
  // The nearest word, ties to even; what is too large is held at the largest.
  uint16_t Word(float value) const {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    const int exponent = magnitude == 0 ? 1 - bias() : std::max(std::ilogb(magnitude), 1 - bias());
    // In units of the last place. A carry into the next exponent is the right word, too.
    const double units = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
    const double word = units + static_cast<double>((exponent + bias() - 1) << fraction_bits);
    return static_cast<uint16_t>(sign | static_cast<int>(std::min<double>(word, largest())));
  }
};
inline constexpr Format kHalf{5, 10};
inline constexpr Format kBrain{8, 7};

// Rounded after the product and after the sum.
inline float AddWeighted(float weight, float x, float sum) {
  const volatile float product = weight * x;  // never fused with the addition
  return sum + product;
}

inline bool IsFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

// The scale of a block of changes: the largest magnitude over 127, rounded up to 17 bits.
inline float Int8Scale(std::span<const float> block) {
  float largest = 0;
  for (const float x : block) largest = std::max(largest, std::fabs(x));
  const uint32_t bits = std::bit_cast<uint32_t>(largest / 127.0F);
  return std::bit_cast<float>((bits + 127) & ~127U);
}
inline int8_t Int8Value(float x, float scale) {
  return static_cast<int8_t>(std::nearbyint(x / scale));
}

}  // namespace crowdsurf::bench::scalar
