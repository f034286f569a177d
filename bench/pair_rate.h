// Pair rate: how many of the exchanges that are asked for a job of real peers makes, and how long
// it takes random numbers to agree, where messages take time.
//
// A ring of workers in virtual time (simulator/descent/descent.h) whose trainers take steps that
// change nothing, but for one: there each adds numbers of its own to its model. Messages take
// `latency` steps one way, whatever they carry. Deterministic under seed.
#pragma once

#include <cstdint>

#include "worker/core/view/averaging_choices.h"

namespace crowdsurf::bench {

struct PairRateOptions {
  worker::StrategyKind strategy = worker::StrategyKind::kA2CiD2;  // or gossip, in pairs
  int workers = 16;
  double rate = 1;        // exchanges asked for, of a worker in a step
  double latency = 0.2;   // steps
  double target = 1e-6;   // of the squared distance to the mean
  uint64_t steps = 1000;  // a worker takes, from that one on
  uint64_t seed = 1;
};

struct PairRateResult {
  double reached = 0;  // exchanges made over those asked for
  double steps = 0;    // from that one on to the target; not reached: all of them
  double drift = 0;    // of the mean, relative to the numbers' deviation
};
PairRateResult RunPairRate(const PairRateOptions& options);

}  // namespace crowdsurf::bench
