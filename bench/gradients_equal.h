// Averaged gradients against one process with the large batch.
//
// A job of real peers in virtual time (simulator/descent) trains the built-in classifier, without
// hidden layers, with `what: Gradients`. Beside it one process takes plain SGD steps on the same
// examples, each step with all of its examples in one batch: no code of the job is in it.
// Deterministic under seed. Source: docs/gradients.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crowdsurf::bench {

struct GradientsJob {
  int members = 8;
  size_t batch = 8;  // examples of one batch of a worker
  uint64_t global_batch = 256;
  size_t steps = 200;  // that are compared
  uint64_t seed = 1;
};

struct GradientsComparison {
  size_t steps = 0;        // that the job took, of those compared
  double difference = 0;   // of the parameters after the last of them, Euclidean, relative
  bool bit_equal = false;  // all workers that took it had equal parameters then
};

GradientsComparison CompareWithLargeBatch(const GradientsJob& job);

}  // namespace crowdsurf::bench
