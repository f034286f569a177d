// RankSet: ranks of one group, which has at most 64 (kMaxRanks): sets of members, of contributors.
//
// One word, so that sets are compared, sent and united at no cost. Pre of all that takes a rank:
// rank < 64. Values; any thread.
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace crowdsurf::worker {

class RankSet {
 public:
  constexpr RankSet() = default;
  template <class... Ranks>
  static constexpr RankSet Of(Ranks... ranks) {
    RankSet set;
    (set.Insert(static_cast<size_t>(ranks)), ...);
    return set;
  }
  static constexpr RankSet FromBits(uint64_t bits) {  // bit r: rank r; as on the wire
    RankSet set;
    set.bits_ = bits;
    return set;
  }
  static constexpr RankSet FirstRanks(size_t count) {  // pre: count <= 64
    return FromBits(count < 64 ? (uint64_t{1} << count) - 1 : ~uint64_t{0});
  }
  constexpr uint64_t bits() const { return bits_; }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr size_t size() const { return static_cast<size_t>(std::popcount(bits_)); }
  constexpr bool Contains(size_t rank) const { return (bits_ >> rank & 1) != 0; }
  constexpr bool ContainsAll(RankSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr bool Meets(RankSet other) const { return (bits_ & other.bits_) != 0; }
  constexpr size_t first() const {
    return static_cast<size_t>(std::countr_zero(bits_));
  }  // pre: not empty

  constexpr void Insert(size_t rank) { bits_ |= uint64_t{1} << rank; }
  constexpr void Erase(size_t rank) { bits_ &= ~(uint64_t{1} << rank); }

  constexpr RankSet operator|(RankSet other) const { return FromBits(bits_ | other.bits_); }
  constexpr RankSet operator&(RankSet other) const { return FromBits(bits_ & other.bits_); }
  constexpr RankSet operator-(RankSet other) const { return FromBits(bits_ & ~other.bits_); }
  constexpr RankSet& operator|=(RankSet other) { return *this = *this | other; }
  constexpr auto operator<=>(const RankSet&) const = default;

 private:
  uint64_t bits_ = 0;
};

}  // namespace crowdsurf::worker
