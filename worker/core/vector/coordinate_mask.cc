#include "worker/core/vector/coordinate_mask.h"

#include <algorithm>

namespace crowdsurf::worker {

uint64_t ElementsOf(const ChunkExtents& extents) {
  uint64_t elements = 0;
  for (const ChunkExtent& extent : extents) elements += extent.count;
  return elements;
}

std::optional<CoordinateMask> CoordinateMask::Of(const std::vector<Extent>& extents,
                                                 uint64_t elements) {
  if (extents.size() > kMaxMaskExtents) return std::nullopt;
  auto own = std::make_shared<std::vector<Extent>>();
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.count == 0 || extent.begin < end || extent.begin > elements ||
        extent.count > elements - extent.begin)
      return std::nullopt;
    // Neighbours are one extent: equal masks have equal extents.
    if (!own->empty() && extent.begin == end)
      own->back().count += extent.count;
    else
      own->push_back(extent);
    end = extent.begin + extent.count;
  }
  CoordinateMask mask;
  // A mask of everything is the whole one, so its chunks travel as ever.
  const bool whole = own->size() == 1 && own->front() == Extent{0, elements};
  if (!whole) mask.extents_ = std::move(own);
  return mask;
}

uint64_t CoordinateMask::end() const {
  return whole() || extents_->empty() ? 0 : extents_->back().begin + extents_->back().count;
}

std::optional<ChunkExtents> CoordinateMask::Within(uint64_t begin, uint32_t count) const {
  if (whole() || count == 0) return std::nullopt;
  const uint64_t end = begin + count;
  auto at = std::partition_point(extents_->begin(), extents_->end(), [&](const Extent& extent) {
    return extent.begin + extent.count <= begin;
  });
  ChunkExtents found;
  for (; at != extents_->end() && at->begin < end; ++at) {
    const uint64_t first = std::max(at->begin, begin);
    const uint64_t last = std::min(at->begin + at->count, end);
    found.push_back({static_cast<uint32_t>(first - begin), static_cast<uint32_t>(last - first)});
  }
  // Covered whole: the chunk travels without a mask.
  if (found.size() == 1 && found.front().count == count) return std::nullopt;
  return found;
}

}  // namespace crowdsurf::worker
