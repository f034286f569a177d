// Fold: the weighted mean of a chunk's inputs, as docs/data-plane.md fixes it to the bit.
//
// Pure functions over bytes as they travelled; any thread. Owner of a chunk calls one of them once
// per assignment (reducer.h); nobody else computes that value, so agreement does not rest on it,
// only "the same inputs again give the same bits" does. Memory: the result, and for masked inputs
// their extents. Source: docs/data-plane.md, masks too.
#pragma once

#include <span>
#include <vector>

#include "worker/core/round/rank_set.h"
#include "worker/core/round/round_spec.h"
#include "worker/core/vector/masked_chunk.h"

namespace crowdsurf::worker {

// out = (sum over ranks in `mask`, ascending, of w_i * x_i) * (1 / sum of w_i), and the plain mean
// when all those weights are zero. inputs[rank] is empty for ranks outside the mask. Weights are
// first scaled by one power of two so that the largest is in [1, 2): that is exact, and no weight
// can overflow the sum. Pre: mask is not 0; weights >= 0, finite, one per rank; inputs in the mask
// have out.size() values each, and lie elsewhere.
template <class Scalar>
void FoldInputs(WireFormat wire, RankSet mask, const std::vector<double>& weights,
                const std::vector<ByteView>& inputs, std::span<Scalar> out);

template <class Scalar>
struct MaskedFold {
  std::vector<Scalar> values;
  ChunkExtents kept;  // of no input: they hold `old`
};
// The same for each coordinate over those ranks whose input covers it: the bits of FoldInputs over
// them; but what one alone covers is that one's value as it travelled, and what nobody covers keeps
// `old`, the reducing member's own values of the chunk. Pre, too: every input in the mask is a
// plain chunk of old.size() values or sound as a masked one. O(values + extents x ranks).
template <class Scalar>
MaskedFold<Scalar> FoldMasked(WireFormat wire, RankSet mask, const std::vector<double>& weights,
                              const std::vector<ByteView>& inputs, std::span<const Scalar> old);

}  // namespace crowdsurf::worker
