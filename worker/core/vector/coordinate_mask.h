// Coordinate mask: which coordinates of the vector a member puts into a round (masked group reduce,
// docs/round.md: sum of mask x over sum of mask).
//
// A value, cheap to copy: the extents are shared and never change. Any thread. Whole by default:
// every coordinate, which is what all strategies but IST want. A mask is one member's own affair:
// nobody else knows it before its chunks arrive (masked_chunk.h). Bound: kMaxMaskExtents, 16 MiB.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/core/vector/extent.h"

namespace crowdsurf::worker {

inline constexpr size_t kMaxMaskExtents = 1 << 20;

// Elements [begin, begin + count) of a chunk, from its own begin.
struct ChunkExtent {
  uint32_t begin = 0;
  uint32_t count = 0;
  bool operator==(const ChunkExtent&) const = default;
};
// Ascending, none empty, none touching the next: one list for one set of elements.
using ChunkExtents = std::vector<ChunkExtent>;
uint64_t ElementsOf(const ChunkExtents& extents);

class CoordinateMask {
 public:
  CoordinateMask() = default;  // whole

  // The mask of exactly these extents (none: of no coordinate); what touches is joined, and what
  // covers all `elements` is whole. nullopt: not ascending, overlapping, one empty, beyond
  // `elements`, or too many. O(extents).
  static std::optional<CoordinateMask> Of(const std::vector<Extent>& extents, uint64_t elements);

  bool whole() const { return extents_ == nullptr; }
  // One past the last coordinate in it; 0 when it is whole or empty.
  uint64_t end() const;
  // What it has of the elements [begin, begin + count); nullopt: all of them. O(log extents +
  // found).
  std::optional<ChunkExtents> Within(uint64_t begin, uint32_t count) const;

 private:
  std::shared_ptr<const std::vector<Extent>> extents_;  // null: whole
};

}  // namespace crowdsurf::worker
