// `crowdsurf simulate averaging`: rounds to consensus over many seeds, as text or JSON.
//
// Owner: cli. Keys of the JSON: peers, group_size, failure_rate, target, seeds, grid, rounds,
// rounds_max, rounds_to_1e-4, error (see AveragingRun), seconds is not part of it so that two runs
// print the same. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "simulator/lock_step/averaging.h"

namespace crowdsurf::simulator {

struct AveragingCommand {
  AveragingOptions averaging;
  uint64_t first_seed = 0;
  uint64_t seeds = 1'000;
  unsigned threads = 2;
  bool json = false;
};

struct AveragingSummary {
  worker::Grid grid;
  double rounds = 0;  // means over the seeds
  double rounds_loose = 0;
  size_t rounds_max = 0;
  double error = 0;  // greatest
};

AveragingSummary Summarize(const AveragingCommand& command);
// Returns the exit code (0, or 2 for options out of bounds) and what to print.
int RunSimulateAveraging(const AveragingCommand& command, std::string& output);

}  // namespace crowdsurf::simulator
