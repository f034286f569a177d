// relaysum.papers: RelaySGD with local momentum against other methods for data that differ.
//
// The classifier on digits, split by Dirichlet, at 8, 16 and 64 workers, with 0, 1 and 10 % of the
// messages of values lost. RelaySum is real peers in virtual time on a double binary tree, with
// default settings; the others are in lock step on a ring, or on the exponential graph (PushSum,
// two messages a step: as many bytes). Held-out loss and accuracy of the workers' own models.
// Source: Vogels et al. 2021 (arXiv 2110.04175) tables 1 and 4: VGG-11 on CIFAR-10, 16 workers.
#pragma once

#include "bench/papers/figures.h"
#include "bench/training/runs.h"

namespace crowdsurf::bench {

void RelayPapers(const PapersOptions& options, Runs& runs, Figures& out);

}  // namespace crowdsurf::bench
