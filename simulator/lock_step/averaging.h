// Averaging in lock-step: how many rounds the grid needs, with the core's own grid, stand-ins and
// catch-up.
//
// Pure functions of (options, seed). One number a peer, N(0,1); every round each peer is absent
// with probability failure_rate, keeps its id, and is up again later. Counted as the published
// simulation counts (Ryabinin et al. 2021): rounds until the population variance over *all* peers,
// absent ones included, is below the target. Differs from the paper: fitted grid, stand-ins,
// catch-up (docs/averaging.md). Callers: the `simulate averaging` command and the paper tests. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/core/view/grid.h"

namespace crowdsurf::simulator {

struct AveragingOptions {
  size_t peers = 512;        // 1..kMaxCells
  size_t group_size = 32;    // 2..64
  double failure_rate = 0;   // [0, 1)
  double target = 1e-9;      // of the population variance
  size_t max_rounds = 50;    // cap, as published
  size_t left = 0;           // members that left after the grid was fitted to `peers`: more holes
  bool random_cells = true;  // false: the first `peers` cells are taken
  bool random_weights = false;
};

struct AveragingRun {
  worker::Grid grid;
  size_t rounds = 0;              // to `target`; max_rounds when it was not met
  size_t rounds_loose = 0;        // to 1e-4
  std::vector<double> variances;  // [0] at the start, [t] after round t
  // Greatest distance of a peer that completed the first averaging from the weighted mean of all
  // peers, relative to the largest initial value. Exactness, at failure_rate 0.
  double error = 0;
};

// Scalar: double (paper tests) or float (what travels). O(rounds * peers * group_size).
template <class Scalar>
AveragingRun SimulateAveraging(const AveragingOptions& options, uint64_t seed);

extern template AveragingRun SimulateAveraging<double>(const AveragingOptions&, uint64_t);
extern template AveragingRun SimulateAveraging<float>(const AveragingOptions&, uint64_t);

}  // namespace crowdsurf::simulator
