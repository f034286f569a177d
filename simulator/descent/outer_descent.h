// Outer descent: jobs with an outer optimizer, beside the same computed off line.
//
// Real peers on quadratics (descent.h), nobody dies, all step alike. Deterministic under seed.
// Source: docs/outer-optimizer.md; DiLoCo (Douillard et al. 2023), Algorithm 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/core/view/averaging_config.h"

namespace crowdsurf::simulator {

struct OuterDescent {
  worker::OuterOptimizer outer = {};
  int members = 8;
  uint16_t group_size = 3;
  uint64_t steps = 30;  // of an interval
  uint64_t seed = 1;
};

struct OuterComparison {
  size_t averages = 0;    // compared
  double error = 0;       // the greatest of an element, relative to the largest element
  bool bit_equal = true;  // to the bit
};

// The job's averages against DiLoCo from its first one on, in doubles, one loop over the workers,
// each with the steps that it took: no code of the core is in it.
OuterComparison CompareWithDiLoCo(const OuterDescent& job);
// The job's averages against the means that it would have had without an outer optimizer.
OuterComparison CompareWithMeans(const OuterDescent& job);

}  // namespace crowdsurf::simulator
