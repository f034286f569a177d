// A2CiD2 and gossip in pairs: figures of `bench convergence`.
//
// Keys a2cid2.*. Cost: seconds to some minutes on two cores. Deterministic under seed, the first of
// `seeds`.
#pragma once

#include <cstdint>

#include "bench/figures.h"

namespace crowdsurf::bench {

// Exchanges until random numbers on a ring agree, gossip's over A2CiD2's (Nabli et al. 2023), and
// what is kept: .ring16, .ring32, .ring64, .invariant.
void A2CiD2(uint64_t seed, uint64_t seeds, Figures& out);

// Exchanges until a job on a ring has gossip's final loss: .job.
void Ring16(uint64_t seed, uint64_t seeds, Figures& out);

// What a job makes of the exchanges that it is asked for, where a message takes .2 step: .rate.*.
void PairRate(uint64_t seed, uint64_t seeds, Figures& out);

}  // namespace crowdsurf::bench
