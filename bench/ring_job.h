// Ring job: how many exchanges A2CiD2 needs for the loss that gossip ends at, on a ring of workers
// that train.
//
// The built-in classifier on 16 paced workers with label-sorted shards (digit_workers.h). Each
// takes an SGD step a unit of time, of its own phase; pairs on the ring meet at Poisson times,
// rateCom exchanges a worker and step, and mix by the arithmetic of worker/core (AcidMix,
// AcidExchange, ExchangeClock, constants from the ring's real edge rates; gossip is eta 0,
// alpha-tilde 1/2). What a step changes is added to x-tilde too. Deterministic under seed. No
// network: the cost of the buffer and the wire is measured where there is one. Source: A2CiD2
// (Nabli et al. 2023).
#pragma once

#include <cstdint>

namespace crowdsurf::bench {

struct RingJobOptions {
  uint32_t workers = 16;
  double learning_rate = 0.1;
  double rate_com = 1;       // exchanges a worker and step
  uint64_t steps = 1000;     // of gossip
  uint64_t look_every = 25;  // steps between two looks at the held-out loss
  uint64_t seed = 1;
};

struct RingJobResult {
  double gossip_loss = 0;  // held-out, nats, mean over the workers' own models, over the last looks
  double ratio = 0;  // exchanges of A2CiD2 up to that loss / exchanges of gossip; 1: not before
};
RingJobResult RunRingJob(const RingJobOptions& options);

}  // namespace crowdsurf::bench
