// moshpit.time: time to one loss of all-reduce, AD-PSGD and SGP over that of Moshpit.
//
// The classifier stands for a ResNet-50: a step takes half a second on a worker of speed 1, and the
// model's bytes as long as 102 MB do on 1 Gbit/s. A message has an exponential delay of 100 ms
// besides. Settings: 16 workers of one speed; 64 whose speeds are lognormal (sigma .5); and, with a
// trace, the spot market of churn_papers.h, where all-reduce starts again from a checkpoint at each
// death. Moshpit and AD-PSGD (Gossip in pairs on the exponential graph) are real peers in virtual
// time; SGP and all-reduce are in lock step, on the clock of lock_step_times.h, which counts in
// their favour. The loss is the highest that one of them ends at, so that all reach it.
// Source: Ryabinin et al. 2021 (arXiv 2103.03239) section 4: ResNet-50 and ALBERT, 1.3 times SGP
// and 1.5 times all-reduce on stable machines.
#pragma once

#include "bench/papers/figures.h"
#include "bench/training/runs.h"

namespace crowdsurf::bench {

void MoshpitPapers(const PapersOptions& options, Runs& runs, Figures& out);

}  // namespace crowdsurf::bench
