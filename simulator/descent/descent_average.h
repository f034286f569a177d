// DescentAverage: what a worker of a descent gave to an averaging, and got.
//
// A value.
#pragma once

#include <cstdint>
#include <vector>

namespace crowdsurf::simulator {

// An averaging as a worker saw it.
struct DescentAverage {
  uint64_t steps = 0;         // in all, when it published for it
  uint64_t gathered = 0;      // samples of its gradient then, where gradients are averaged
  double samples = 0;         // of all, as it was told with the result
  std::vector<float> mean;    // of all snapshots: where there is an outer optimizer
  std::vector<float> result;  // what all were given; empty: it was not over at this worker
  // The average, where this worker missed it and fetched it. Its trainer was moved by as much as
  // that is beyond the one that it had, so what it was given is no average of the job.
  std::vector<float> fetched;
  bool changes = false;      // it was one of changes from a base (Int8)
  std::vector<float> model;  // after that, where gradients are averaged
};

}  // namespace crowdsurf::simulator
