// Wire format: a span of values as the bytes that travel and are hashed, and back.
//
// Pure; any thread; O(values). kFloat32 is the values themselves, so it is exact; kFloat16 and
// kBFloat16 round to nearest even and saturate (kernels.h); kInt8 has a scale for each block of
// values (int8_chunk.h), counted from the first one of the span. Encoding what was decoded gives
// the same bytes, so a result can be re-served from its output slot. The double overloads are for
// tests and the simulator: there "None" is eight bytes a value and still exact, and the short
// formats go through float. Source: docs/data-plane.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "worker/core/vector/int8_chunk.h"
#include "worker/core/view/averaging_choices.h"

namespace crowdsurf::worker {

// Bytes of one value whose arithmetic type is Scalar. Pre: not kInt8, whose values share a scale.
template <class Scalar>
constexpr size_t WireWidth(WireFormat format) {
  CHECK(format != WireFormat::kInt8);
  return format == WireFormat::kFloat32 ? sizeof(Scalar) : 2;
}
// Of `count` values.
template <class Scalar>
constexpr size_t WireBytes(WireFormat format, size_t count) {
  return format == WireFormat::kInt8 ? Int8Bytes(count) : count * WireWidth<Scalar>(format);
}

// Pre: out.size() == WireBytes(in.size()).
void EncodeWire(WireFormat format, std::span<const float> in, std::span<uint8_t> out);
void EncodeWire(WireFormat format, std::span<const double> in, std::span<uint8_t> out);

// As kInt8, dithered. Pre: as EncodeWire's.
void EncodeMean(const Int8Dither& dither, std::span<const float> in, std::span<uint8_t> out);
void EncodeMean(const Int8Dither& dither, std::span<const double> in, std::span<uint8_t> out);

// Pre: in.size() == WireBytes(out.size()).
void DecodeWire(WireFormat format, ByteView in, std::span<float> out);
void DecodeWire(WireFormat format, ByteView in, std::span<double> out);

// acc[i] = acc[i] + weights[0] * inputs[0][i] + weights[1] * inputs[1][i] and so on, in this order,
// not fused. Pre: a weight for each input, rounded to the type of acc; each of
// WireBytes(acc.size()).
void AddWeightedWire(WireFormat format, std::span<const float> weights,
                     std::span<const ByteView> inputs, std::span<float> acc);
void AddWeightedWire(WireFormat format, std::span<const double> weights,
                     std::span<const ByteView> inputs, std::span<double> acc);

// x[i] = x[i] * factor, the factor rounded once to the type of x.
void ScaleValues(double factor, std::span<float> x);
void ScaleValues(double factor, std::span<double> x);

inline constexpr size_t kWireBlock = kInt8Block;  // values on the stack: 4 KiB of float32, in L1

// out[i] = values[i] as the other end gets it. `out` may be `values`. Pre: equally long. Scratch of
// kWireBlock values on the stack.
template <class Scalar>
void RoundAsWire(WireFormat format, std::span<const Scalar> values, std::span<Scalar> out) {
  CHECK_EQ(values.size(), out.size());
  std::array<uint8_t, WireBytes<Scalar>(WireFormat::kFloat32, kWireBlock)> wire;
  for (size_t at = 0; at < values.size(); at += kWireBlock) {
    const size_t count = std::min(kWireBlock, values.size() - at);
    const auto bytes = std::span(wire).first(WireBytes<Scalar>(format, count));
    EncodeWire(format, values.subspan(at, count), bytes);
    DecodeWire(format, bytes, out.subspan(at, count));
  }
}

// What a pass over bytes as float32 finds: made where they are in the cache anyway, so that nobody
// fetches them from memory once more for it.
enum class Float32Look : uint8_t { kNone, kFinite, kNotFinite };
Float32Look LookAtFloat32(ByteView bytes);  // kNone: no whole number of values

// True when `in` is exactly `count` values, none is NaN or infinite, and encoding them gives these
// bytes: what a peer's input must be.
template <class Scalar>
bool WireIsSound(WireFormat format, ByteView in, size_t count);
template <>
bool WireIsSound<float>(WireFormat format, ByteView in, size_t count);
template <>
bool WireIsSound<double>(WireFormat format, ByteView in, size_t count);

}  // namespace crowdsurf::worker
