// Tuning: the learning rate of a method, from one grid for all of them.
//
// A rate's score is its mean over two seeds that no figure is taken from: with one, the best rate
// is too often one that is about to diverge. A walk tries half of the grid and finds the same rate,
// unless the loss has two valleys. Pure but for the runs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/training/runs.h"
#include "bench/training/statistics.h"

namespace crowdsurf::bench {

inline constexpr uint64_t kTuningSeeds = 2;

struct RateSearch {
  std::function<RunSpec(double rate, uint64_t seed)> spec;
  std::function<double(const Outcome&)> score;  // the lower the better
  uint64_t first_seed = 0;                      // apart from the fresh ones
  std::vector<double> rates = RateGrid();       // ascending
  bool walk = false;  // from the middle downhill, until both neighbours are worse; else all
};

BestRate Tune(Runs& runs, const RateSearch& search);

}  // namespace crowdsurf::bench
