// Choco and DeepSqueeze against their papers, and the compressors that they use.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <span>
#include <utility>
#include <vector>

#include "tests/paper/quadratic_baselines.h"

namespace crowdsurf::simulator {
namespace {

// Without compression both are plain gossip.
TEST(Baselines, ChocoAndDeepSqueezeOfIdentityAreDPsgd) {
  const BaselineOptions options = OptionsOf(GraphOf(GraphKind::kRing));
  for (const auto kind : {BaselineKind::kChoco, BaselineKind::kDeepSqueeze}) {
    QuadraticGradients problem;
    const auto plain = MakeBaseline(BaselineKind::kDPsgd, options, problem);
    const auto run = MakeBaseline(kind, options, problem);
    for (int step = 0; step < 50; ++step) {
      plain->Step();
      run->Step();
      for (uint32_t i = 0; i < kWorkers; ++i)
        for (size_t k = 0; k < kDimensions; ++k)
          ASSERT_NEAR(run->model(i)[k], plain->model(i)[k], 1e-12);
    }
    EXPECT_DOUBLE_EQ(run->bytes(), plain->bytes());
  }
}

// C of two values and four, written down again: signs times the mean of the absolute values.
Eigen::MatrixXd SignsOf(const Eigen::MatrixXd& v) {  // [workers x dimensions]
  Eigen::MatrixXd c(v.rows(), v.cols());
  for (Eigen::Index i = 0; i < v.rows(); ++i) {
    for (const auto& [begin, count] : {std::pair{0, 2}, std::pair{2, 4}}) {
      const auto part = v.row(i).segment(begin, count);
      c.row(i).segment(begin, count) =
          part.cwiseSign() * (part.cwiseAbs().sum() / static_cast<double>(count));
    }
  }
  return c;
}

// Choco: q = C(x - h), h += q, x += g (W h - h). DeepSqueeze: v = x + e, e = v - C(v),
// x += g (W C(v) - C(v)). In matrices [workers x dimensions].
TEST(Baselines, ChocoAndDeepSqueezeAreTheirPublishedRecursions) {
  constexpr double kConsensus = 0.3;
  const Graph graph = GraphOf(GraphKind::kHypercube);
  for (const auto kind : {BaselineKind::kChoco, BaselineKind::kDeepSqueeze}) {
    QuadraticGradients problem;
    BaselineOptions options = OptionsOf(graph);
    options.compressor.kind = Compressor::Kind::kSign;
    options.consensus_rate = kConsensus;
    const auto run = MakeBaseline<double>(kind, options, problem);
    Eigen::MatrixXd x(kWorkers, kDimensions), memory = Eigen::MatrixXd::Zero(kWorkers, kDimensions);
    for (size_t k = 0; k < kDimensions; ++k) x.col(static_cast<Eigen::Index>(k)) = AxisOf(*run, k);
    for (int step = 0; step < 60; ++step) {
      for (size_t k = 0; k < kDimensions; ++k) {
        auto axis = x.col(static_cast<Eigen::Index>(k));
        axis -= kBaselineRate * GradientsAt(problem, axis, k);
      }
      Eigen::MatrixXd sent;
      if (kind == BaselineKind::kChoco) {
        memory += SignsOf(x - memory);
        sent = memory;
      } else {
        const Eigen::MatrixXd v = x + memory;
        sent = SignsOf(v);
        memory = v - sent;
      }
      x += kConsensus * (WeightsOf(graph) * sent - sent);
      run->Step();
      for (size_t k = 0; k < kDimensions; ++k)
        ASSERT_LT((AxisOf(*run, k) - x.col(static_cast<Eigen::Index>(k))).norm(), 1e-10) << step;
    }
  }
}

// Choco's claim: any contraction keeps consensus linear, with a small enough step. DeepSqueeze's
// error is remembered and not lost.
TEST(Baselines, CompressedGossipComesToTheMean) {
  for (const auto compression : {Compressor::Kind::kSign, Compressor::Kind::kTopK}) {
    QuadraticGradients problem;
    const auto run = MakeBaseline<double>(BaselineKind::kChoco,
                                          CompressedOptions(compression, 0.25, 0.1), problem);
    run->Step();
    problem.silent = true;
    const std::vector<double> mean = MeanOf(*run);
    for (int step = 0; step < 4000; ++step) run->Step();
    for (uint32_t i = 0; i < kWorkers; ++i)
      for (size_t k = 0; k < kDimensions; ++k) EXPECT_NEAR(run->model(i)[k], mean[k], 1e-6);
  }
}

TEST(Compressors, KeepWhatTheySay) {
  const Compressor sign{Compressor::Kind::kSign, 0, {{0, 2}, {2, 4}}};
  std::vector<double> v = {1, -3, 4, 0, -4, 2};
  sign.Apply(std::span(v));
  EXPECT_EQ(v, (std::vector<double>{2, -2, 2.5, 2.5, -2.5, 2.5}));
  EXPECT_EQ(sign.bytes(), 5 + 5);

  const Compressor top{Compressor::Kind::kTopK, 0.5, {{0, 2}, {2, 4}}};
  v = {1, -3, 4, 0, -4, 2};
  top.Apply(std::span(v));
  EXPECT_EQ(v, (std::vector<double>{0, -3, 4, 0, -4, 0}));
  EXPECT_EQ(top.bytes(), 8 + 16);
}

}  // namespace
}  // namespace crowdsurf::simulator
