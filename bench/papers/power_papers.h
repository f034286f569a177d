// powergossip.bytes, powergossip.choco: bytes to one loss of dense gossip and of Choco over those
// of PowerGossip.
//
// The language model on text that all 16 workers have, on a ring, plain SGD. PowerGossip (rank 1,
// defaults) and dense gossip with both neighbours, every 1, 4, 16 and 64 steps, are real peers in
// virtual time. Choco (signs, and the largest hundredth) and DeepSqueeze are in lock step, each
// with the best of seven consensus rates; what that search cost is said, in runs. Beside them is
// PowerGossip in lock step, with warm factors and with cold ones (power_baseline.h). Bytes are
// those of values. The loss is the one that PowerGossip ends at, plus 1 %. Source: Vogels et al.
// 2020 (arXiv 2008.01425) section 5: an LSTM on WikiText-2, 16 workers on a ring.
#pragma once

#include <cstdint>

#include "bench/papers/figures.h"
#include "bench/training/runs.h"

namespace crowdsurf::bench {

inline constexpr uint64_t kSplitSeed = 1;  // of the text in what is trained on and what is held out

// Nothing without options.text.
void PowerPapers(const PapersOptions& options, Runs& runs, Figures& out);

}  // namespace crowdsurf::bench
