// Change: what a member's snapshot is beyond the base, as it goes into a round of changes, and what
// its own bytes leave of it.
//
//   c = x - B + e        goes in, and travels as Q(c)
//   e' = c - Q(c)        the rest, which the next c takes in: error feedback
//
// x is the snapshot, B the last committed average, Q the wire format. The rest is a member's own
// affair: it takes the place of the one before when a decided value holds Q(c), and only then. The
// same arithmetic in the same order at both places, so Q(c) is what the round had. Templates on the
// scalar: float in production, double in tests. Any thread that owns the spans; O(values), nothing
// is allocated. Source: docs/compression.md; error feedback: Seide et al. 2014, Karimireddy et al.
// 2019.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "worker/core/vector/kernels.h"
#include "worker/core/vector/wire_format.h"

namespace crowdsurf::worker {

// out = c. Pre: equally long; `rest` may be empty, then e is 0.
template <class Scalar>
void ChangeOf(std::span<const Scalar> snapshot, std::span<const Scalar> base,
              std::span<const Scalar> rest, std::span<Scalar> out) {
  if constexpr (std::is_same_v<Scalar, float>) return ChangeFloats(snapshot, base, rest, out);
  CHECK_EQ(snapshot.size(), base.size());
  CHECK_EQ(snapshot.size(), out.size());
  CHECK(rest.empty() || rest.size() == out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = snapshot[i] - base[i];
    if (!rest.empty()) out[i] += rest[i];
  }
}

// rest = c - Q(c). A change beyond all finite numbers was sent as the largest of them, and leaves
// nothing. Pre: equally long.
template <class Scalar>
void RestOf(std::span<const Scalar> change, std::span<const Scalar> travelled,
            std::span<Scalar> rest) {
  if constexpr (std::is_same_v<Scalar, float>) return RestFloats(change, travelled, rest);
  CHECK_EQ(change.size(), rest.size());
  CHECK_EQ(travelled.size(), rest.size());
  for (size_t i = 0; i < rest.size(); ++i) {
    const Scalar left = change[i] - travelled[i];
    rest[i] = std::isfinite(left) ? left : Scalar{0};
  }
}

enum class RestBefore : uint8_t { kVoid, kKept };

// rest = e'; it was e before, or void: then e is 0. Pre: whole vectors, for blocks are counted from
// their first value.
template <class Scalar>
void KeepRest(RestBefore before, std::span<const Scalar> snapshot, std::span<const Scalar> base,
              std::span<Scalar> rest) {
  std::array<Scalar, kWireBlock> block;
  std::array<Scalar, kWireBlock> travelled;
  for (size_t at = 0; at < rest.size(); at += kWireBlock) {
    const size_t count = std::min(kWireBlock, rest.size() - at);
    const std::span<Scalar> change = std::span(block).first(count);
    const std::span<Scalar> rests = rest.subspan(at, count);
    ChangeOf<Scalar>(
        snapshot.subspan(at, count), base.subspan(at, count),
        before == RestBefore::kKept ? std::span<const Scalar>(rests) : std::span<const Scalar>(),
        change);
    RoundAsWire<Scalar>(WireFormat::kInt8, change, std::span(travelled).first(count));
    RestOf<Scalar>(change, std::span(travelled).first(count), rests);
  }
}

}  // namespace crowdsurf::worker
