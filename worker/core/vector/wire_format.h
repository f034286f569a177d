// Wire format: a span of values as the bytes that travel and are hashed, and back.
//
// Pure; any thread; O(values). kFloat32 is the values themselves, so it is exact; kFloat16 and
// kBFloat16 round to nearest even and saturate (kernels.h). Encoding what was decoded gives the
// same bytes, so a result can be re-served from its output slot. The double overloads are for tests
// and the simulator: there "None" is eight bytes a value and still exact, and the short formats go
// through float. Source: docs/data-plane.md.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "worker/core/view/averaging_choices.h"

namespace crowdsurf::worker {

// Bytes of one value whose arithmetic type is Scalar.
template <class Scalar>
constexpr size_t WireWidth(WireFormat format) {
  return format == WireFormat::kFloat32 ? sizeof(Scalar) : 2;
}

// Pre: out.size() == in.size() * WireWidth.
void EncodeWire(WireFormat format, std::span<const float> in, std::span<uint8_t> out);
void EncodeWire(WireFormat format, std::span<const double> in, std::span<uint8_t> out);

// Pre: in.size() == out.size() * WireWidth.
void DecodeWire(WireFormat format, ByteView in, std::span<float> out);
void DecodeWire(WireFormat format, ByteView in, std::span<double> out);

// acc[i] = acc[i] + weight * in[i], not fused. Pre: in.size() == acc.size() * WireWidth.
void AddWeightedWire(WireFormat format, double weight, ByteView in, std::span<float> acc);
void AddWeightedWire(WireFormat format, double weight, ByteView in, std::span<double> acc);

// x[i] = x[i] * factor, the factor rounded once to the type of x.
void ScaleValues(double factor, std::span<float> x);
void ScaleValues(double factor, std::span<double> x);

// True when `in` is exactly `count` values and none is NaN or infinite: what a peer's input must
// be.
template <class Scalar>
bool WireIsSound(WireFormat format, ByteView in, size_t count);
template <>
bool WireIsSound<float>(WireFormat format, ByteView in, size_t count);
template <>
bool WireIsSound<double>(WireFormat format, ByteView in, size_t count);

}  // namespace crowdsurf::worker
