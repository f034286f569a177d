// Index sets as bytes: how the agent tells its trainer which units are active.
//
// Groups ascending; of each u32 group, u32 count, count x u32 indices, ascending; then zeros to the
// end of the region (docs/trainer-link.md, section 8). Little-endian. Pure; any thread; O(bytes).
#pragma once

#include <optional>

#include "base/bytes.h"
#include "worker/core/subnet/unit_schema.h"

namespace crowdsurf::worker {

// Bytes of a region that holds the largest index sets of groups with these units.
uint64_t IndexRegionBytes(const std::map<uint32_t, uint32_t>& units);

// Pre: no set is empty.
Bytes EncodeIndexSets(const IndexSets& sets);

// nullopt: not the one way to write its sets, or one of them has a unit that `units` lacks.
std::optional<IndexSets> DecodeIndexSets(ByteView bytes, const std::map<uint32_t, uint32_t>& units);

}  // namespace crowdsurf::worker
