// Key: a point of the 256-bit identifier space, and the XOR metric on it.
//
// Records live at keys; peers live in the same space at their PeerId. Distance(a, b) = a xor b read
// as an unsigned big-endian number (Maymounkov and Mazieres 2002, section 2.1): symmetric, zero
// only for a == b, and for a given point and distance exactly one other point, so "the k closest"
// is never ambiguous. Pure functions. Any thread.
#pragma once

#include <string_view>

#include "base/digest.h"
#include "base/id.h"

namespace crowdsurf::dht {

struct KeyTag;
using Key = FixedId<KeyTag, 32>;

// The key of a name, such as "charlm/roster/0": its SHA-256.
inline Key KeyOf(std::string_view name) { return Key(Sha256(AsBytes(name)).bytes()); }
// The point where a peer lives.
inline Key PointOf(const PeerId& id) { return Key(id.bytes()); }

struct DistanceTag;
// Ordered as the number it stands for (big endian), so `<` means closer.
using Distance = FixedId<DistanceTag, 32>;

inline Distance DistanceBetween(const Key& a, const Key& b) {
  std::array<uint8_t, 32> out;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<uint8_t>(a.bytes()[i] ^ b.bytes()[i]);
  }
  return Distance(out);
}

// Is `a` strictly closer to `target` than `b`?
inline bool Closer(const Key& target, const PeerId& a, const PeerId& b) {
  return DistanceBetween(target, PointOf(a)) < DistanceBetween(target, PointOf(b));
}

// Length of the common prefix of `a` and `b` in bits, 0..256: the index of the bucket of one as the
// other sees it (256 only for equal points).
int CommonPrefix(const Key& a, const Key& b);

}  // namespace crowdsurf::dht
