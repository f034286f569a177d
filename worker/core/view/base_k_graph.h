// Base-(k+1) graph: a sequence of sparse graphs after which everybody holds the exact mean, for any
// number of workers.
//
// Source: Takezawa, Sato, Bao, Niwa, Yamada 2023, "Beyond Exponential Graph" (arXiv 2305.11420):
// the k-peer Hyper-hypercube graph and the Simple Base-(k+1) and Base-(k+1) graphs. In each round a
// node has at most k neighbours, and after all rounds the mean is exact, in at most 2 log_(k+1)(n)
// + 2 of them. Differs: the exchange rounds send from every part to what is left at once, with the
// weights derived in the .cc file; parts that are done go on among themselves meanwhile. Pure
// functions of the member count; values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace crowdsurf::worker {

// x_a and x_b move towards each other: x_a += weight (x_b - x_a), and the other way round.
struct WeightedEdge {
  uint32_t a = 0, b = 0;  // a < b
  double weight = 0;      // 0 < weight < 1
  bool operator==(const WeightedEdge&) const = default;
};

// Rounds, in order, each with the edges ascending by (a, b). Every round's matrix is symmetric and
// doubly stochastic: W_ab = W_ba = weight, W_aa = 1 - the weights of a's edges. Their product is
// the matrix of the mean. n == 1: no round. InvalidArgument: n == 0 or k == 0. O(rounds n k).
StatusOr<std::vector<std::vector<WeightedEdge>>> BaseKRounds(uint32_t n, uint32_t k);

}  // namespace crowdsurf::worker
