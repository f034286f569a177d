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
  std::vector<float> mean;    // of all snapshots: where there is an outer optimizer
  std::vector<float> result;  // what it was given
};

}  // namespace crowdsurf::simulator
