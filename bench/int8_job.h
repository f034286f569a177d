// Int8 jobs: do all members end an averaging of changes with the same bits while members die, and
// does a model that is averaged so end where one that is averaged in float32 does?
//
// Whole jobs of real peers in virtual time (simulator/descent/descent.h): quadratics of a few
// blocks for the bits, the built-in classifier on the synthetic digits for the loss. Deterministic
// under seed. Source: docs/compression.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/core/view/averaging_choices.h"

namespace crowdsurf::bench {

struct Int8Bits {
  size_t deaths = 0;    // each of a worker in its training; another comes for it
  size_t rounds = 0;    // averagings of changes that one began and did not live to the end of
  size_t compared = 0;  // averages of changes, given or fetched, with the first member's
  bool equal = true;    // to the bit, those of whole values too
};
// Jobs of eight workers, one of which dies every quarter of a second, in turn with Moshpit and with
// AllReduce, the first of them with `seed`: until there are so many `rounds`.
Int8Bits Int8BitsOf(uint64_t seed, size_t rounds);

// Held-out loss at the end, nats, the mean over eight workers' own models.
double LossOnDigits(worker::WireFormat wire, uint64_t seed);

struct Estimate {
  double value = 0;
  double error = 0;  // standard error of the mean
};
// Pre: at least two samples, independent of each other.
Estimate MeanOf(const std::vector<double>& samples);

}  // namespace crowdsurf::bench
