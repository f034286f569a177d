// Fixed-size identifiers as strong types: a PeerId is not a ViewHash although both are 32 bytes.
//
// Ordered (lexicographic) and hashable, so they can be keys of ordered containers, whose iteration
// may reach output. Any thread.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <optional>
#include <ostream>
#include <string>

#include "base/bytes.h"

namespace crowdsurf {

template <class Tag, size_t kSize>
class FixedId {
 public:
  static constexpr size_t kBytes = kSize;

  constexpr FixedId() = default;  // all zero: "none"
  explicit constexpr FixedId(const std::array<uint8_t, kSize>& bytes) : bytes_(bytes) {}
  // Pre: bytes.size() == kSize; shorter input gives nullopt, for decoders.
  static std::optional<FixedId> From(ByteView bytes) {
    if (bytes.size() != kSize) return std::nullopt;
    FixedId id;
    std::copy(bytes.begin(), bytes.end(), id.bytes_.begin());
    return id;
  }
  static std::optional<FixedId> FromHexString(std::string_view hex) {
    FixedId id;
    if (!FromHex(hex, id.bytes_)) return std::nullopt;
    return id;
  }

  ByteView view() const { return bytes_; }
  const std::array<uint8_t, kSize>& bytes() const { return bytes_; }
  bool none() const { return *this == FixedId(); }
  std::string hex() const { return ToHex(bytes_); }
  // The first eight hex digits, for logs and screens.
  std::string brief() const { return ToHex(view().first(std::min<size_t>(4, kSize))); }

  // As the bytes order. Ids are hashes: nearly always the first eight bytes decide, without a call.
  constexpr std::strong_ordering operator<=>(const FixedId& other) const {
    if (const auto head = Head() <=> other.Head(); head != 0) return head;
    return bytes_ <=> other.bytes_;
  }
  constexpr bool operator==(const FixedId& other) const {
    return Head() == other.Head() && bytes_ == other.bytes_;
  }
  friend std::ostream& operator<<(std::ostream& out, const FixedId& id) {
    return out << id.brief();
  }
  template <class H>
  friend H AbslHashValue(H h, const FixedId& id) {
    return H::combine(std::move(h), id.bytes_);
  }

 private:
  // The first bytes as a number that orders as they do.
  constexpr uint64_t Head() const {
    static_assert(kSize >= 8);
    // Spelt out, for then it is one load.
    const auto byte = [this](size_t i) { return static_cast<uint64_t>(bytes_[i]); };
    return byte(0) << 56 | byte(1) << 48 | byte(2) << 40 | byte(3) << 32 | byte(4) << 24 |
           byte(5) << 16 | byte(6) << 8 | byte(7);
  }
  std::array<uint8_t, kSize> bytes_{};
};

// The next id of `in`; zeros, and `in` fails, where no more is left.
template <class Id>
Id ReadId(ByteReader& in) {
  const auto id = Id::From(in.Raw(Id::kBytes));
  if (!id) in.Fail();
  return id.value_or(Id());
}

struct PeerIdTag;
struct DigestTag;

// SHA-256 of an agent's public key and boot counter (docs/agent.md): an agent that restarts is a
// new peer.
using PeerId = FixedId<PeerIdTag, 32>;
// A SHA-256 of anything else.
using Digest = FixedId<DigestTag, 32>;

}  // namespace crowdsurf
