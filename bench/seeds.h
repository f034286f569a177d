// Means over seeds: runs of a pure function of its seed.
//
// Owner: one bench, two threads. Cost: that of all runs, half of it on each.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

namespace crowdsurf::bench {

// Mean over seeds, on two threads; `one` is a pure function of its seed, so the mean does not
// depend on the threads.
template <class F>
double MeanOverSeeds(uint64_t seed, uint64_t seeds, F&& one) {
  std::vector<double> results(seeds);
  const auto work = [&](uint64_t from) {
    for (uint64_t i = from; i < seeds; i += 2) results[i] = one(seed + i);
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  double sum = 0;
  for (const double r : results) sum += r;
  return sum / static_cast<double>(seeds);
}

}  // namespace crowdsurf::bench
