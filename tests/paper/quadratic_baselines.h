// Baselines on quadratics f_i(x) = 1/2 sum of h_ik (x_k - c_ik)^2 with full gradients, in double.
//
// The common optimum is known and nothing is noise. Used by the paper tests of the baselines; one
// test owns a problem, single sequence.
#pragma once

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/rng.h"
#include "simulator/baselines/baseline.h"
#include "simulator/baselines/compressor.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::simulator {

using worker::Graph;
using worker::GraphKind;

inline constexpr uint32_t kWorkers = 8;
inline constexpr size_t kDimensions = 6;
inline constexpr double kBaselineRate = 0.1;
inline constexpr uint64_t kSeed = 7;

class QuadraticGradients : public Gradients<double> {
 public:
  QuadraticGradients() : h(kWorkers), c(kWorkers) {
    Rng rng(kSeed);
    for (uint32_t i = 0; i < kWorkers; ++i) {
      for (size_t k = 0; k < kDimensions; ++k) {
        h[i].push_back(0.25 + 0.75 * rng.UniformDouble());
        c[i].push_back(3 * rng.Normal());
      }
    }
  }
  uint32_t workers() const override { return kWorkers; }
  size_t elements() const override { return kDimensions; }
  void Start(std::span<double> x) const override {
    for (size_t k = 0; k < x.size(); ++k) x[k] = 1 + static_cast<double>(k);
  }
  void Take(uint32_t i, std::span<const double> x, std::span<double> gradient) override {
    if (silent) return std::fill(gradient.begin(), gradient.end(), 0.0);
    for (size_t k = 0; k < x.size(); ++k) gradient[k] = h[i][k] * (x[k] - c[i][k]);
  }

  double Optimum(size_t k) const {
    double weighted = 0, total = 0;
    for (uint32_t i = 0; i < kWorkers; ++i) {
      weighted += h[i][k] * c[i][k];
      total += h[i][k];
    }
    return weighted / total;
  }

  std::vector<std::vector<double>> h, c;
  bool silent = false;  // all gradients are zero
};

inline Graph GraphOf(GraphKind kind) { return worker::MakeGraph(kind, kWorkers).value(); }

inline BaselineOptions OptionsOf(const Graph& graph) {
  BaselineOptions options;
  options.graph = graph;
  options.rate = [](uint64_t) { return kBaselineRate; };
  options.compressor.tensors = {{0, 2}, {2, kDimensions - 2}};
  options.seed = kSeed;
  return options;
}

// Compressed gossip on a ring.
inline BaselineOptions CompressedOptions(Compressor::Kind kind, double keep,
                                         double consensus_rate) {
  BaselineOptions options = OptionsOf(GraphOf(GraphKind::kRing));
  options.compressor.kind = kind;
  options.compressor.keep = keep;
  options.consensus_rate = consensus_rate;
  return options;
}

inline std::vector<double> MeanOf(const Baseline<double>& run) {
  std::vector<double> mean(kDimensions);
  for (uint32_t i = 0; i < run.workers(); ++i)
    for (size_t k = 0; k < kDimensions; ++k) mean[k] += run.model(i)[k] / run.workers();
  return mean;
}

// The greatest distance, along an axis, of a worker to the common optimum.
inline double Distance(const QuadraticGradients& problem, const Baseline<double>& run) {
  double worst = 0;
  for (uint32_t i = 0; i < run.workers(); ++i)
    for (size_t k = 0; k < kDimensions; ++k)
      worst = std::max(worst, std::abs(run.model(i)[k] - problem.Optimum(k)));
  return worst;
}

inline double DistanceAfter(BaselineKind kind, const BaselineOptions& options, int steps) {
  QuadraticGradients problem;
  const auto run = MakeBaseline(kind, options, problem);
  for (int step = 0; step < steps; ++step) run->Step();
  return Distance(problem, *run);
}

inline Eigen::MatrixXd WeightsOf(const Graph& graph) {
  const std::vector<double> w = worker::MetropolisWeights(graph);
  Eigen::MatrixXd matrix(kWorkers, kWorkers);
  for (int i = 0; i < matrix.rows(); ++i)
    for (int j = 0; j < matrix.cols(); ++j)
      matrix(i, j) = w[static_cast<size_t>(i) * kWorkers + static_cast<size_t>(j)];
  return matrix;
}

// Axis k of everybody's models.
inline Eigen::VectorXd AxisOf(const Baseline<double>& run, size_t k) {
  Eigen::VectorXd axis(kWorkers);
  for (uint32_t i = 0; i < kWorkers; ++i) axis(i) = run.model(i)[k];
  return axis;
}
inline Eigen::VectorXd GradientsAt(const QuadraticGradients& problem, const Eigen::VectorXd& x,
                                   size_t k) {
  Eigen::VectorXd g(kWorkers);
  for (uint32_t i = 0; i < kWorkers; ++i) g(i) = problem.h[i][k] * (x(i) - problem.c[i][k]);
  return g;
}

}  // namespace crowdsurf::simulator
