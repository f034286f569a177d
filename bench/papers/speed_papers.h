// papers.seconds: CPU time of 64 real peers with real gradients for 2,000 steps each, on one core.
//
// RelaySum on a double binary tree, mixing at every step: the classifier, and the language model
// (GRU of 64 units, 4 windows of 32 characters). Short: a tenth of the steps, times ten. Measured
// anew each time: it is no run that another bench may take over.
#pragma once

#include "bench/papers/figures.h"
#include "bench/training/runs.h"

namespace crowdsurf::bench {

void SpeedPapers(const PapersOptions& options, Runs& runs, Figures& out);

}  // namespace crowdsurf::bench
