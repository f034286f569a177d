// diloco.h100: what a hundred steps between two averagings cost, with an outer optimizer.
//
// Eight real peers in virtual time average in one group every hundred steps, without and with
// DiLoCo's outer optimizer; every-step averaging is in lock step. One worker alone with the same
// outer optimizer stands beside them: what it gains is no gain of the averaging. All workers draw
// from the same examples, and take as many steps. Held-out loss of the last average. The
// classifier, and in the long bench the language model too. Source: Douillard et al. 2023 (arXiv
// 2311.08105): C4, eight workers, 500 steps, AdamW; here the inner optimizer is SGD with Nesterov
// momentum.
#pragma once

#include "bench/papers/figures.h"
#include "bench/training/runs.h"

namespace crowdsurf::bench {

// The language model only with options.text.
void DiLoCoPapers(const PapersOptions& options, Runs& runs, Figures& out);

}  // namespace crowdsurf::bench
