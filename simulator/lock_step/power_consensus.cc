#include "simulator/lock_step/power_consensus.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/rng.h"

namespace crowdsurf::simulator {
namespace {

using worker::MatrixShape;
using worker::PowerEdge;
using worker::PowerLayout;

std::vector<double> RankOne(MatrixShape shape, Rng& rng) {
  std::vector<double> left(shape.rows), right(shape.cols), out;
  for (double& v : left) v = rng.Normal();
  for (double& v : right) v = rng.Normal();
  out.reserve(left.size() * right.size());
  for (const double l : left) {
    for (const double r : right) out.push_back(l * r);
  }
  return out;
}

std::vector<double> Draw(MatrixKind kind, MatrixShape shape, Rng& rng) {
  std::vector<double> out(size_t{shape.rows} * shape.cols, 0.0);
  if (kind == MatrixKind::kNormal) {
    for (double& v : out) v = rng.Normal();
    return out;
  }
  // Terms of rank one, each .7 of the one before.
  const int terms = kind == MatrixKind::kRankOne ? 1 : 40;
  double scale = 1;
  for (int term = 0; term < terms; ++term, scale *= 0.7) {
    const std::vector<double> one = RankOne(shape, rng);
    for (size_t i = 0; i < out.size(); ++i) out[i] += scale * one[i];
  }
  return out;
}

}  // namespace

PowerWorld::PowerWorld(const PowerOptions& options)
    : options_(options),
      graph_(worker::MakeGraph(options.graph, options.n).value()),
      weights_(worker::MetropolisWeights(graph_)) {
  const uint64_t elements = uint64_t{options.shape.rows} * options.shape.cols;
  const worker::TensorView tensor{0, options.shape};
  // Rank 0: no matrix is declared, so all values travel whole.
  layout_ = std::make_shared<const PowerLayout>(std::span(&tensor, options.rank == 0 ? 0 : 1),
                                                elements, std::max(options.rank, 1u));
  for (size_t e = 0; e < graph_.edges.size(); ++e) edges_.push_back(DrawFactors(e));
  const Rng root(options.seed);
  for (uint32_t i = 0; i < options.n; ++i) {
    Rng values = root.Fork("worker " + std::to_string(i));
    values_.push_back(Draw(options.matrices, options.shape, values));
  }
}

// One stream for both ends, so that their factors are equal to the bit.
PowerWorld::Ends PowerWorld::DrawFactors(size_t edge) const {
  const auto& [a, b, multiplicity] = graph_.edges[edge];
  Rng shared = Rng(options_.seed).Fork("edge " + std::to_string(a) + " " + std::to_string(b));
  if (iterations_ > 0) shared = shared.Fork("iteration " + std::to_string(iterations_));
  return {PowerEdge<double>(layout_, shared, options_.null_columns),
          PowerEdge<double>(layout_, shared, options_.null_columns)};
}

void PowerWorld::Iterate() {
  // All edges go by the values before the step.
  const std::vector<std::vector<double>> snapshot = values_;
  for (size_t e = 0; e < graph_.edges.size(); ++e) {
    const auto [a, b, multiplicity] = graph_.edges[e];
    std::optional<Ends> cold;
    if (!options_.warm) cold.emplace(DrawFactors(e));
    auto& [low, high] = cold ? *cold : edges_[e];
    std::vector<double> of_low(low.MessageSize()), of_high(of_low.size());
    low.Project(snapshot[a], of_low);
    high.Project(snapshot[b], of_high);
    const double weight = weights_[size_t{a} * options_.n + b];
    low.Apply(of_low, of_high, weight, values_[a]);
    high.Apply(of_low, of_high, -weight, values_[b]);
    // Both ends send; counted per worker.
    floats_ += 2.0 * static_cast<double>(of_low.size()) / options_.n;
  }
  ++iterations_;
}

std::vector<double> PowerWorld::Mean() const {
  std::vector<double> mean(values_[0].size(), 0.0);
  for (const auto& value : values_) {
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += value[i] / options_.n;
  }
  return mean;
}

double PowerWorld::Spread() const {
  const std::vector<double> mean = Mean();
  double sum = 0;
  for (const auto& value : values_) {
    for (size_t i = 0; i < mean.size(); ++i) sum += (value[i] - mean[i]) * (value[i] - mean[i]);
  }
  return sum;
}

void PowerWorld::Agree() {
  const std::vector<double> mean = Mean();
  for (auto& value : values_) value = mean;
}

PowerResult RunPowerConsensus(const PowerOptions& options, double target, uint64_t iterations) {
  PowerWorld world(options);
  const std::vector<double> mean = world.Mean();
  const double first = world.Spread();
  double largest = 0, before = first;
  for (const double v : mean) largest = std::max(largest, std::abs(v));
  PowerResult result;
  for (uint64_t k = 0; k < iterations && !result.reached; ++k) {
    world.Iterate();
    const double spread = world.Spread();
    // It may grow by rounding alone.
    result.grew = result.grew || spread > before * (1 + 1e-12);
    before = spread;
    result.reached = spread < target * first;
  }
  result.floats = world.floats();
  const std::vector<double> after = world.Mean();
  for (size_t i = 0; i < mean.size(); ++i)
    result.mean_drift = std::max(result.mean_drift, std::abs(after[i] - mean[i]) / largest);
  return result;
}

double SpreadAfterConsensus(worker::NullColumns null_columns, uint64_t seed) {
  constexpr int kSteps = 500, kAgreeAt = 50;
  constexpr double kDrift = 0.01;  // of a step
  const PowerOptions options{.shape = {40, 30}, .null_columns = null_columns, .seed = seed};
  PowerWorld world(options);
  world.Agree();
  Rng drift(seed);
  // Steady drifts of rank one give the edges something to follow.
  std::vector<std::vector<double>> drifts;
  for (uint32_t i = 0; i < options.n; ++i) drifts.push_back(RankOne(options.shape, drift));
  for (int step = 1; step <= kSteps; ++step) {
    // At kAgreeAt all differences are null: columns overwritten by them stay null for good.
    if (step == kAgreeAt) {
      world.Agree();
    } else {
      for (uint32_t i = 0; i < options.n; ++i) {
        for (size_t e = 0; e < drifts[i].size(); ++e) world.Of(i)[e] += kDrift * drifts[i][e];
      }
    }
    world.Iterate();
  }
  return std::sqrt(world.Spread());
}

}  // namespace crowdsurf::simulator
