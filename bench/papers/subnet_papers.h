// ist.n2, .n4, .n8: accuracy of sub-networks (IST) below local SGD's at equal steps. ist.time: how
// much longer local SGD and all-reduce take to one accuracy.
//
// The classifier with one wide hidden layer, plain SGD, all workers on the same examples, and ten
// steps between two averagings; the long bench has two hidden layers beside it. Real peers in
// virtual time: units are dealt from decided values, and each trainer computes with its smaller
// matrices, so its step takes as much less time as its model has fewer parameters. Beside IST
// stands a network of width / n, trained whole by local SGD of as many workers: a worker of IST
// computes with no more than that. What is judged is the last average.
//
// Time: four workers, a machine of 1 GFLOP/s each, 50 Mbit/s, and a fast network of 10 Gbit/s.
// All-reduce averages at every step, in lock step, on a clock that counts in its favour. The
// accuracy is two points below local SGD's at the end. Local SGD of fifty steps stands beside IST
// of fifty. Source: Yuan et al. 2022 (arXiv 1910.02120) section 5: speech and images, two to eight
// workers.
#pragma once

#include "bench/papers/figures.h"
#include "bench/training/runs.h"

namespace crowdsurf::bench {

void SubnetPapers(const PapersOptions& options, Runs& runs, Figures& out);
void SubnetTimePapers(const PapersOptions& options, Runs& runs, Figures& out);

}  // namespace crowdsurf::bench
