// a2cid2.papers: A2CiD2 beside gossip in pairs and all-reduce, at equal gradients and equal time.
//
// The classifier on digits split by Dirichlet .1, workers whose steps take 20 to 24 ms, links of
// 2 ms and an exponential 2 ms, 1 Gbit/s. A2CiD2 and gossip are real peers in virtual time;
// all-reduce is in lock step, at the pace of the slowest worker, with 2 log2(n) latencies and twice
// the model's bytes a step. Ring, exponential and complete graph, each at rates that were tuned at
// 16 workers. Source: Nabli et al. 2023 (arXiv 2306.08289) section 4: CIFAR-10 and ImageNet, 4 to
// 64 workers, where all data are alike.
#pragma once

#include "bench/papers/figures.h"
#include "bench/training/runs.h"

namespace crowdsurf::bench {

void AcidPapers(const PapersOptions& options, Runs& runs, Figures& out);

}  // namespace crowdsurf::bench
