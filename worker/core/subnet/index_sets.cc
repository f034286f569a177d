#include "worker/core/subnet/index_sets.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace crowdsurf::worker {

uint64_t IndexRegionBytes(const std::map<uint32_t, uint32_t>& units) {
  uint64_t bytes = 0;
  for (const auto& [group, count] : units) bytes += 8 + 4 * uint64_t{count};
  return bytes;
}

Bytes EncodeIndexSets(const IndexSets& sets) {
  ByteWriter out;
  for (const auto& [group, active] : sets) {
    CHECK(!active.empty());
    out.U32(group);
    out.U32(static_cast<uint32_t>(active.size()));
    for (const uint32_t unit : active) out.U32(unit);
  }
  return out.Take();
}

std::optional<IndexSets> DecodeIndexSets(ByteView bytes,
                                         const std::map<uint32_t, uint32_t>& units) {
  IndexSets sets;
  ByteReader in(bytes);
  while (in.remaining() >= 8) {
    const uint32_t group = in.U32(), count = in.U32();
    // A group without units ends the list; zeros fill the rest of the region.
    if (count == 0) {
      if (group != 0) return std::nullopt;
      break;
    }
    const auto known = units.find(group);
    if (known == units.end() || count > known->second) return std::nullopt;
    // Groups ascend: each set has one encoding.
    if (!sets.empty() && sets.rbegin()->first >= group) return std::nullopt;
    std::vector<uint32_t> active(count);
    for (uint32_t& unit : active) unit = in.U32();
    const bool ascends =
        std::adjacent_find(active.begin(), active.end(), std::greater_equal<>()) == active.end();
    if (!in.ok() || !ascends || active.back() >= known->second) return std::nullopt;
    sets.emplace(group, std::move(active));
  }
  while (in.remaining() > 0) {
    if (in.U8() != 0) return std::nullopt;
  }
  return sets;
}

}  // namespace crowdsurf::worker
