// PowerConsensus: PowerGossip's small experiments, run on the arithmetic that the strategy ships.
//
// Every worker holds one matrix, and all edges iterate together. Deterministic under seed; double
// precision; no network. Used by the paper tests (bounds) and by `./dev bench convergence`
// (figures). Single sequence. Source: PowerGossip (Vogels et al. 2020), section 5 and appendix.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/core/power/power_edge.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::simulator {

// What the workers begin with: independent normal values; with singular values that fall by .7; of
// rank one.
enum class MatrixKind : uint8_t { kNormal, kDecaying, kRankOne };

struct PowerOptions {
  worker::GraphKind graph = worker::GraphKind::kRing;
  uint32_t n = 8;
  worker::MatrixShape shape = {100, 100};
  uint32_t rank = 1;  // 0: plain gossip, every value travels
  MatrixKind matrices = MatrixKind::kRankOne;
  worker::NullColumns null_columns = worker::NullColumns::kKeep;
  bool warm = true;  // false: each iteration begins with factors drawn anew
  uint64_t seed = 1;
};

class PowerWorld {
 public:
  explicit PowerWorld(const PowerOptions& options);

  // One iteration of every edge, from one snapshot of all workers.
  void Iterate();
  std::vector<double>& Of(uint32_t worker) { return values_[worker]; }
  std::vector<double> Mean() const;
  // Sum of squared distances to the mean.
  double Spread() const;
  // Every worker holds the mean.
  void Agree();
  double floats() const { return floats_; }  // sent by a worker so far, on average

 private:
  struct Ends {
    worker::PowerEdge<double> low, high;
  };
  Ends DrawFactors(size_t edge) const;

  const PowerOptions options_;
  const worker::Graph graph_;
  const std::vector<double> weights_;
  std::shared_ptr<const worker::PowerLayout> layout_;
  std::vector<Ends> edges_;                  // as in the graph
  std::vector<std::vector<double>> values_;  // by worker
  double floats_ = 0;
  uint64_t iterations_ = 0;
};

struct PowerResult {
  bool reached = false;
  double floats = 0;      // sent by a worker until the spread is below `target` of the first
  double mean_drift = 0;  // largest change of the mean, of its largest value
  bool grew = false;      // an iteration made the spread larger, beyond rounding
};
PowerResult RunPowerConsensus(const PowerOptions& options, double target, uint64_t iterations);

// Eight workers on a ring agree exactly at step 50 of 500, and then drift apart again: the spread
// at the end. PowerGossip on rank-one drift of 40 by 30.
double SpreadAfterConsensus(worker::NullColumns null_columns, uint64_t seed);

}  // namespace crowdsurf::simulator
