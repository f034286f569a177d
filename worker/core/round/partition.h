// Partition: who reduces how much of the vector, and in which chunks.
//
// Pure functions of the view's bandwidth classes and the element count, so nobody can disagree.
// Water-filling closed form of the butterfly's load balancing: minimise
// max_i (1 + (n-2) w_i) / b_i, which hivemind solves by linear programming. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "worker/core/round/rank_set.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {

// Elements each of n members reduces; the sum is `elements`. bandwidths: relative, finite, >= 0;
// nullopt = mean of the known ones (of nobody is known: equal); 0 = contributes but reduces
// nothing. A member whose share is below `min_elements` gets none and the others take it over
// in proportion (when all are below, nobody is left out).
// Errors: InvalidArgument for a negative or non-finite bandwidth, FailedPrecondition when nobody
// can reduce (all zero, or no members). O(n^2 log(1/eps)).
StatusOr<std::vector<uint64_t>> PartSizes(uint64_t elements,
                                          const std::vector<std::optional<double>>& bandwidths,
                                          uint64_t min_elements);

// Member::bandwidth_class is a half-octave of bytes/s, so that small changes of a measurement do
// not change a view: class = round(2 log2(bytes/s)) + 1, 0 unknown; and back (nullopt for 0).
uint32_t ClassOfBandwidth(double bytes_per_second);  // not positive or not finite: 0
std::optional<double> BandwidthOfClass(uint32_t bandwidth_class);

// Chunks of at most `chunk_elements` elements: rank r owns `shares[r]` consecutive elements, ranks
// ascending; holes have share 0. No elements at all: one empty chunk of the first rank that
// `members` names, so that weights are still agreed. Pre: chunk_elements > 0, sum(shares) elements,
// members != 0.
std::vector<ChunkSpan> MakeChunks(const std::vector<uint64_t>& shares, RankSet members,
                                  uint32_t chunk_elements);

}  // namespace crowdsurf::worker
