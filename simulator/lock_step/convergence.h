// Convergence: the papers' small experiments, run on the very arithmetic that the strategies ship.
//
// Deterministic under seed; double precision; no network model beyond what each experiment names.
// Used by the paper tests (bounds) and by `./dev bench convergence` (figures). Single sequence.
// Sources: Nabli et al. 2023 (A2CiD2: consensus, invariants), Vogels et al. 2021 (RelaySGD: message
// loss, closed forms).
#pragma once

#include <cstdint>

#include "worker/core/view/graph.h"

namespace crowdsurf::simulator {

// E1: random scalars on `kind` with n workers, Poisson exchanges at one per worker and unit time,
// unit gradient ticks that only mix; exchanges per worker until the relative squared distance to
// the mean is below `target`.
struct ConsensusOptions {
  worker::GraphKind kind = worker::GraphKind::kRing;
  uint32_t n = 16;
  bool momentum = true;  // false: plain pairwise gossip (eta = 0, alpha-tilde = 1/2)
  double target = 1e-6;
  uint64_t seed = 1;
  double time_limit = 1e5;  // units
};
struct ConsensusResult {
  double exchanges = 0;        // per worker
  double invariant_drift = 0;  // |change of sum(x) + sum(x-tilde)| / n at the end
  bool reached = false;
};
ConsensusResult RunConsensus(const ConsensusOptions& options);

// Heterogeneous quadratics f_i = 1/2 sum h (x - c)^2, h in [1/4, 1], d = 10, RelaySGD on a tree
// with message loss.
struct RelayOptions {
  worker::GraphKind tree = worker::GraphKind::kChain;
  uint32_t n = 16;
  double learning_rate = 0.1;
  double loss = 0;    // probability that a message is lost
  double active = 1;  // probability that a worker takes part in a tick (1: lock-step)
  uint64_t steps = 3000;
  uint64_t seed = 1;
};
struct RelayResult {
  double distance = 0;  // mean squared distance to the joint optimum, averaged over the last third
  double bytes_per_step = 0;  // per worker, float32 on the wire
};
RelayResult RunRelay(const RelayOptions& options);

// One worker emits one update of size n when the pipeline is full, then silence: what everybody
// ends at, to be compared with 1 / (1 + mean delay). Returns the largest deviation over all sources
// and receivers.
double RelayDeliveryError(worker::GraphKind tree, uint32_t n);
// Constant integer inputs: the first step at which everybody's average is exactly the mean (bit for
// bit).
uint32_t RelayFiniteSteps(worker::GraphKind tree, uint32_t n);

}  // namespace crowdsurf::simulator
