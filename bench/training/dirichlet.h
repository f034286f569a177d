// Dirichlet shards: examples for n workers whose classes differ as much as alpha says.
//
// Every worker draws the shares of its classes from Dir(alpha, ..., alpha) and takes as many
// examples as every other, none twice: Hsu et al. 2019 (arXiv 1909.06335), as RelaySGD's
// experiments do. alpha 1 is mild, .1 leaves a worker a few classes, .01 about one. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "worker/trainer/data/digits.h"

namespace crowdsurf::bench {

// shares[worker][class], each row adds up to 1. alpha > 0.
std::vector<std::vector<double>> DirichletShares(uint32_t workers, size_t classes, double alpha,
                                                 Rng rng);

// One shard a worker, floor(examples / workers) each. A class that is used up is taken from no
// more. Pre: at least one example a worker.
std::vector<trainer::DigitSet> DirichletShards(const trainer::DigitSet& all, uint32_t workers,
                                               double alpha, Rng rng);

}  // namespace crowdsurf::bench
