#include "bench/training/tuning.h"

#include <algorithm>
#include <cmath>

namespace crowdsurf::bench {

namespace {

// The means over the tuning seeds of the rates [first, last) of the grid.
std::vector<double> ScoresOf(Runs& runs, const RateSearch& search, size_t first, size_t last) {
  std::vector<RunSpec> specs;
  for (size_t r = first; r < last; ++r)
    for (uint64_t i = 0; i < kTuningSeeds; ++i)
      specs.push_back(search.spec(search.rates[r], search.first_seed + i));
  runs.Do(specs);
  std::vector<double> scores;
  for (size_t r = 0; r < last - first; ++r) {
    double sum = 0;
    for (uint64_t i = 0; i < kTuningSeeds; ++i)
      sum += search.score(runs.of(specs[r * kTuningSeeds + i].key));
    scores.push_back(sum / kTuningSeeds);
  }
  return scores;
}

}  // namespace

BestRate Tune(Runs& runs, const RateSearch& search) {
  const size_t rates = search.rates.size();
  if (!search.walk) return BestOf(search.rates, ScoresOf(runs, search, 0, rates));
  size_t lowest = rates, highest = 0;  // tried: one stretch of the grid
  for (size_t at = rates / 2;;) {
    const size_t first = at > 0 ? at - 1 : 0, last = std::min(at + 2, rates);
    lowest = std::min(lowest, first);
    highest = std::max(highest, last);
    // What was tried is not run again.
    const std::vector<double> near = ScoresOf(runs, search, first, last);
    const double own = near[at - first];
    // Of equal ones the lower, as BestOf: where rates diverge, all scores are equal.
    if (at > 0 && (near.front() <= own || std::isnan(own)))
      --at;
    else if (at + 1 < rates && near.back() < own)
      ++at;
    else
      return {search.rates[at], own, at > 0 && at + 1 < rates, highest - lowest};
  }
}

}  // namespace crowdsurf::bench
