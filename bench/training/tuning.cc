#include "bench/training/tuning.h"

namespace crowdsurf::bench {

BestRate Tune(Runs& runs, const RateSearch& search) {
  std::vector<RunSpec> specs;
  for (const double rate : search.rates)
    for (uint64_t i = 0; i < kTuningSeeds; ++i)
      specs.push_back(search.spec(rate, search.first_seed + i));
  runs.Do(specs);
  std::vector<double> scores;
  for (size_t r = 0; r < search.rates.size(); ++r) {
    double sum = 0;
    // The mean of the tuning seeds.
    for (uint64_t i = 0; i < kTuningSeeds; ++i)
      sum += search.score(runs.of(specs[r * kTuningSeeds + i].key));
    scores.push_back(sum / kTuningSeeds);
  }
  return BestOf(search.rates, scores);
}

}  // namespace crowdsurf::bench
