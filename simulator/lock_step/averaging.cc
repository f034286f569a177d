#include "simulator/lock_step/averaging.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "simulator/lock_step/lock_step.h"

namespace crowdsurf::simulator {
namespace {

using worker::CellIndex;

constexpr double kLooseTarget = 1e-4;  // the bracketed column of the published table

std::vector<CellIndex> DrawCells(size_t cells, const AveragingOptions& options, Rng& rng) {
  std::vector<CellIndex> drawn(cells);
  for (size_t i = 0; i < cells; ++i) drawn[i] = static_cast<CellIndex>(i);
  // Which cells have members is drawn, or the first ones have.
  if (options.random_cells) rng.Shuffle(drawn);
  drawn.resize(options.peers - options.left);
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

template <class Scalar>
class Run {
 public:
  Run(const AveragingOptions& options, worker::Grid grid, uint64_t seed)
      : options_(options), rng_(seed), swarm_(grid, DrawCells(grid.cells(), options, rng_), 1) {
    double weight_sum = 0;
    for (const CellIndex cell : swarm_.members()) {
      const double value = rng_.Normal();
      const double weight = options.random_weights ? 0.1 + rng_.UniformDouble() : 1.0;
      swarm_.Value(cell)[0] = static_cast<Scalar>(value);
      swarm_.SetWeight(cell, weight);
      mean_ += weight * static_cast<double>(swarm_.Value(cell)[0]);
      weight_sum += weight;
      largest_ = std::max(largest_, std::abs(value));
    }
    mean_ /= weight_sum;
  }

  AveragingRun Go() {
    AveragingRun run{swarm_.grid(), options_.max_rounds, options_.max_rounds, {Variance()}, 0};
    const size_t axes = swarm_.grid().axes();
    while (swarm_.rounds() < options_.max_rounds) {
      swarm_.Round([&](CellIndex) { return !rng_.Bernoulli(options_.failure_rate); },
                   MissedEnd::kAdopt);
      const double variance = Variance();
      run.variances.push_back(variance);
      // After one trip over the axes all hold the mean, if nobody was absent.
      if (swarm_.rounds() == axes) run.error = Error();
      if (variance < kLooseTarget) run.rounds_loose = std::min(run.rounds_loose, swarm_.rounds());
      if (variance < options_.target && swarm_.rounds() < run.rounds) run.rounds = swarm_.rounds();
      // Not before a whole trip, at whose end the error is measured.
      if (variance < options_.target && swarm_.rounds() >= axes) break;
    }
    return run;
  }

 private:
  // Over all peers, those that missed rounds included (docs/simulator.md).
  double Variance() const {
    double mean = 0;
    for (const CellIndex cell : swarm_.members()) mean += Value(cell);
    mean /= static_cast<double>(swarm_.members().size());
    double sum = 0;
    for (const CellIndex cell : swarm_.members())
      sum += (Value(cell) - mean) * (Value(cell) - mean);
    return sum / static_cast<double>(swarm_.members().size());
  }

  double Error() const {
    double error = 0;
    for (const CellIndex cell : swarm_.members())
      // Only those that completed the averaging hold its mean.
      if (swarm_.Completed(cell)) error = std::max(error, std::abs(Value(cell) - mean_));
    return error / largest_;
  }

  double Value(CellIndex cell) const { return static_cast<double>(swarm_.Value(cell)[0]); }

  const AveragingOptions options_;
  Rng rng_;
  LockStep<Scalar> swarm_;
  double mean_ = 0;  // weighted, of all
  double largest_ = 0;
};

}  // namespace

template <class Scalar>
AveragingRun SimulateAveraging(const AveragingOptions& options, uint64_t seed) {
  CHECK_GE(options.peers, 1U);
  CHECK_LT(options.left, options.peers);
  CHECK(options.failure_rate >= 0 && options.failure_rate < 1);
  return Run<Scalar>(options, worker::FitGrid(options.peers, options.group_size), seed).Go();
}

template AveragingRun SimulateAveraging<double>(const AveragingOptions&, uint64_t);
template AveragingRun SimulateAveraging<float>(const AveragingOptions&, uint64_t);

}  // namespace crowdsurf::simulator
