// Int8 chunk: changes as bytes, with one scale for each block of values.
//
// A block is kInt8Block values, the last one of a chunk may have less. Its scale s is the largest
// magnitude over 127, rounded up to 17 significant bits. A value x travels as the integer q nearest
// to x / s, ties to even, and comes back as q s, which is exact: 7 and 17 bits fit into a float's
// 24. In a block with a scale some |q| is 127, so encoding what was decoded gives the same bytes.
//   4 bytes ff, no value in any other format; for each block its scale and its q; one zero byte
//   where the size would be odd (masked_chunk.h). No values: no bytes.
// |x - q s| <= s (1/2 + 2^-17), and s <= max |x| / 127 (1 + 2^-15). A block whose largest magnitude
// is below 127 2^-126 is zeros. Infinity is the largest finite value, NaN is 0.
// Results are dithered: a value between two steps goes to either, in proportion, by a hash of its
// place. So what is small beside its block is kept in the mean over many rounds, and no owner has
// to remember what it rounded away. Pure functions over spans; any thread; no allocation;
// O(values). The same bits on every instruction set, as kernels.h says. Source:
// docs/compression.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace crowdsurf::worker {

// Values under one scale. Half as many would cost .4 % more bytes; twice as many let one large
// value take the precision of more others.
inline constexpr size_t kInt8Block = 1024;

// Of a chunk of `count` values.
constexpr size_t Int8Bytes(size_t count) {
  if (count == 0) return 0;
  const size_t scales = 1 + (count + kInt8Block - 1) / kInt8Block;  // and the mark
  return 4 * scales + count + count % 2;
}

// Pre: out.size() == Int8Bytes(in.size()).
void ToInt8(std::span<const float> in, std::span<uint8_t> out);

// Where a dither comes from: equal ones round equal values alike.
struct Int8Dither {
  uint32_t key = 0;    // of the round
  uint64_t first = 0;  // place of the first value in the vector
};
// The same with dither: |x - q s| < s (1 + 2^-17), 0 in the mean over keys. What ToInt8 has given
// comes back as it is. Pre: as ToInt8.
void ToInt8Dithered(const Int8Dither& dither, std::span<const float> in, std::span<uint8_t> out);

// Pre: in.size() == Int8Bytes(out.size()), and Int8IsSound for AddWeightedInt8 and FromInt8 to mean
// anything; any bytes are safe.
void FromInt8(ByteView in, std::span<float> out);
// acc[i] = acc[i] + weight * x[i], not fused. Pre: in.size() == Int8Bytes(acc.size()).
void AddWeightedInt8(float weight, ByteView in, std::span<float> acc);

// True for exactly what these can give for `count` values: so every scale and value is finite,
// and a holder of the values can serve these bytes again.
bool Int8IsSound(ByteView in, size_t count);

}  // namespace crowdsurf::worker
