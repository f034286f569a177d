// Kernels: the loops over tensor bytes, vectorised with run-time dispatch (Google Highway).
//
// Pure functions over spans; any thread; no allocation. Every result is the same bits on every
// instruction set: multiply, round, add, round (never a fused multiply-add), and conversions are
// written with integer operations because Highway 1.0.3's own truncate on some targets. Wire spans
// are little-endian bytes of any alignment. Meant for chunks of 64-256 KiB, which stay in the L2
// cache between passes. Source: docs/data-plane.md; IEEE 754-2019 section 4.3.1
// (roundTiesToEven).
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace crowdsurf::worker {

// acc[i] = acc[i] + weights[0] * inputs[0][i] + weights[1] * inputs[1][i] and so on, in this order.
// Several inputs are read side by side: where they come from memory that takes half the time of one
// after the other. Pre: a weight for each input; each holds acc.size() values of the format in the
// name (4, 2 and 2 bytes each).
void AddWeightedFloat32(std::span<const float> weights, std::span<const ByteView> inputs,
                        std::span<float> acc);
void AddWeightedFloat16(std::span<const float> weights, std::span<const ByteView> inputs,
                        std::span<float> acc);
void AddWeightedBFloat16(std::span<const float> weights, std::span<const ByteView> inputs,
                         std::span<float> acc);

// x[i] = x[i] * factor.
void Scale(float factor, std::span<float> x);

// out[i] = x[i] - base[i] + rest[i], rounded after each; without `rest` where that is empty. Pre:
// the others are equally long. `rest` may be `out`.
void ChangeFloats(std::span<const float> x, std::span<const float> base,
                  std::span<const float> rest, std::span<float> out);

// rest[i] = change[i] - travelled[i], or 0 where that is not finite. Pre: equally long.
void RestFloats(std::span<const float> change, std::span<const float> travelled,
                std::span<float> rest);

// float32 to 16 bits, round to nearest, ties to even. A finite value beyond the format's largest
// becomes the largest with its sign (65504; 3.3895e38): one big parameter must not turn a mean into
// infinity. Infinity stays infinity; a NaN becomes the quiet NaN with its sign. Pre: out.size() ==
// 2 * in.size().
void ToFloat16(std::span<const float> in, std::span<uint8_t> out);
void ToBFloat16(std::span<const float> in, std::span<uint8_t> out);

// Exact. Pre: in.size() == 2 * out.size(). A signalling NaN stays a NaN.
void FromFloat16(ByteView in, std::span<float> out);
void FromBFloat16(ByteView in, std::span<float> out);

// True when no value is NaN or infinite. Pre: size is a multiple of the element's.
bool AllFiniteFloat32(ByteView x);
bool AllFiniteFloat16(ByteView x);
bool AllFiniteBFloat16(ByteView x);

}  // namespace crowdsurf::worker
