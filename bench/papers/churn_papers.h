// churn.STRATEGY: what a recorded spot market costs each strategy: final loss with it over final
// loss without.
//
// Real peers in virtual time train the classifier, every worker on all the examples, so that who
// is there does not change what is learned. The job without churn has as many workers as the trace
// has on average, takes as many steps of each, and has the same learning rate, tuned for each
// strategy without churn. The trace runs ten times faster than it was recorded, and a step takes
// half a second. Losses are means over the living at the end.
#pragma once

#include "bench/papers/figures.h"
#include "bench/training/runs.h"

namespace crowdsurf::bench {

// Nothing without options.trace.
void ChurnPapers(const PapersOptions& options, Runs& runs, Figures& out);

}  // namespace crowdsurf::bench
