// Methods of others against their papers: recursions written down again, closed forms, and what
// each of them must keep.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/paper/quadratic_baselines.h"

namespace crowdsurf::simulator {
namespace {

// Whatever is sent, the mean model moves by the mean update: nothing is lost or counted twice.
TEST(Baselines, TheMeanMovesByTheMeanGradient) {
  for (const auto kind :
       {BaselineKind::kAllReduce, BaselineKind::kDPsgd, BaselineKind::kD2,
        BaselineKind::kGradientTracking, BaselineKind::kQuasiGlobal, BaselineKind::kPushSum,
        BaselineKind::kChoco, BaselineKind::kDeepSqueeze}) {
    for (const auto compression : {Compressor::Kind::kSign, Compressor::Kind::kTopK}) {
      QuadraticGradients problem;
      const auto run =
          MakeBaseline<double>(kind, CompressedOptions(compression, 0.5, 0.2), problem);
      for (int step = 0; step < 40; ++step) {
        std::vector<double> expected = MeanOf(*run), gradient(kDimensions);
        for (uint32_t i = 0; i < kWorkers; ++i) {
          problem.Take(i, run->model(i), gradient);
          for (size_t k = 0; k < kDimensions; ++k)
            expected[k] -= kBaselineRate * gradient[k] / kWorkers;
        }
        run->Step();
        const std::vector<double> mean = MeanOf(*run);
        for (size_t k = 0; k < kDimensions; ++k)
          ASSERT_NEAR(mean[k], expected[k], 1e-12)
              << "method " << static_cast<int>(kind) << " step " << step;
      }
    }
  }
}

// With momentum nothing else changes: the mean moves by PyTorch's Nesterov update of the mean
// gradient.
TEST(Baselines, MomentumIsNesterovAsPyTorchWritesIt) {
  QuadraticGradients problem;
  BaselineOptions options = OptionsOf(GraphOf(GraphKind::kComplete));
  options.momentum = 0.9;
  const auto run = MakeBaseline(BaselineKind::kAllReduce, options, problem);
  std::vector<double> x(kDimensions), velocity(kDimensions);
  problem.Start(x);
  for (int step = 0; step < 50; ++step) {
    std::vector<double> mean(kDimensions), gradient(kDimensions);
    for (uint32_t i = 0; i < kWorkers; ++i) {
      problem.Take(i, x, gradient);
      for (size_t k = 0; k < kDimensions; ++k) mean[k] += gradient[k] / kWorkers;
    }
    for (size_t k = 0; k < kDimensions; ++k) {
      velocity[k] = 0.9 * velocity[k] + mean[k];
      x[k] -= kBaselineRate * (mean[k] + 0.9 * velocity[k]);
    }
    run->Step();
    for (size_t k = 0; k < kDimensions; ++k) ASSERT_NEAR(run->model(3)[k], x[k], 1e-12);
  }
}

// x <- W (2 x - x' - rate (g - g')), in the matrices of Tang et al. 2018, with (W + I) / 2.
TEST(Baselines, D2IsItsPublishedRecursion) {
  QuadraticGradients problem;
  const Graph graph = GraphOf(GraphKind::kRing);
  const Eigen::MatrixXd w = (WeightsOf(graph) + Eigen::MatrixXd::Identity(kWorkers, kWorkers)) / 2;
  const auto run = MakeBaseline(BaselineKind::kD2, OptionsOf(graph), problem);
  std::vector<Eigen::VectorXd> before, last, now;
  for (size_t k = 0; k < kDimensions; ++k) {
    now.push_back(AxisOf(*run, k));
    last.push_back(GradientsAt(problem, now[k], k));
    before.push_back(now[k]);
    now[k] = w * (now[k] - kBaselineRate * last[k]);
  }
  run->Step();
  for (int step = 1; step < 60; ++step) {
    for (size_t k = 0; k < kDimensions; ++k) {
      ASSERT_LT((AxisOf(*run, k) - now[k]).norm(), 1e-11) << "step " << step;
      const Eigen::VectorXd g = GradientsAt(problem, now[k], k);
      const Eigen::VectorXd next = w * (2 * now[k] - before[k] - kBaselineRate * (g - last[k]));
      before[k] = now[k];
      now[k] = next;
      last[k] = g;
    }
    run->Step();
  }
}

// D-PSGD's fixed point x = W (x - rate h (x - c)) is a linear system: the bias that the others are
// made to lose.
TEST(Baselines, DPsgdEndsAtItsFixedPoint) {
  QuadraticGradients problem;
  const Graph graph = GraphOf(GraphKind::kRing);
  const Eigen::MatrixXd w = WeightsOf(graph);
  const auto run = MakeBaseline(BaselineKind::kDPsgd, OptionsOf(graph), problem);
  for (int step = 0; step < 3000; ++step) run->Step();
  for (size_t k = 0; k < kDimensions; ++k) {
    Eigen::VectorXd h(kWorkers), c(kWorkers);
    for (uint32_t i = 0; i < kWorkers; ++i) {
      h(i) = problem.h[i][k];
      c(i) = problem.c[i][k];
    }
    const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(kWorkers, kWorkers);
    const Eigen::MatrixXd pulls = kBaselineRate * Eigen::MatrixXd(h.asDiagonal());
    const Eigen::VectorXd fixed =
        (identity - w * (identity - pulls)).colPivHouseholderQr().solve(w * pulls * c);
    EXPECT_LT((AxisOf(*run, k) - fixed).norm(), 1e-9);
  }
  EXPECT_GT(Distance(problem, *run), 0.1);
}

TEST(Baselines, D2AndGradientTrackingEndAtTheCommonOptimum) {
  const BaselineOptions options = OptionsOf(GraphOf(GraphKind::kRing));
  EXPECT_LT(DistanceAfter(BaselineKind::kD2, options, 3000), 1e-9);
  EXPECT_LT(DistanceAfter(BaselineKind::kGradientTracking, options, 3000), 1e-9);
  EXPECT_GT(DistanceAfter(BaselineKind::kDPsgd, options, 3000), 0.1);
}

// x <- W (x + y), y <- W y + u - u': the tracker's sum is the sum of the gradients.
TEST(Baselines, GradientTrackingIsItsPublishedRecursion) {
  QuadraticGradients problem;
  const Graph graph = GraphOf(GraphKind::kExponential);
  const Eigen::MatrixXd w = WeightsOf(graph);
  const auto run = MakeBaseline(BaselineKind::kGradientTracking, OptionsOf(graph), problem);
  std::vector<Eigen::VectorXd> x, y, g;
  for (size_t k = 0; k < kDimensions; ++k) {
    x.push_back(AxisOf(*run, k));
    g.push_back(GradientsAt(problem, x[k], k));
    y.push_back(g[k]);
  }
  for (int step = 0; step < 60; ++step) {
    run->Step();
    for (size_t k = 0; k < kDimensions; ++k) {
      x[k] = w * (x[k] - kBaselineRate * y[k]);
      const Eigen::VectorXd next = GradientsAt(problem, x[k], k);
      y[k] = w * y[k] + next - g[k];
      g[k] = next;
      ASSERT_LT((AxisOf(*run, k) - x[k]).norm(), 1e-11) << "step " << step;
      ASSERT_NEAR(y[k].sum(), g[k].sum(), 1e-10);
    }
  }
}

// On a complete graph everybody is one: m <- mu m + (1 - mu) (x' - x) / rate, v = mu m + g,
// x <- x - rate (g + mu v), on the mean gradient.
TEST(Baselines, QuasiGlobalMomentumOfACompleteGraph) {
  QuadraticGradients problem;
  BaselineOptions options = OptionsOf(GraphOf(GraphKind::kComplete));
  options.momentum = 0.9;
  const auto run = MakeBaseline(BaselineKind::kQuasiGlobal, options, problem);
  std::vector<double> x(kDimensions), m(kDimensions), gradient(kDimensions);
  problem.Start(x);
  for (int step = 0; step < 80; ++step) {
    std::vector<double> mean(kDimensions);
    for (uint32_t i = 0; i < kWorkers; ++i) {
      problem.Take(i, x, gradient);
      for (size_t k = 0; k < kDimensions; ++k) mean[k] += gradient[k] / kWorkers;
    }
    for (size_t k = 0; k < kDimensions; ++k) {
      const double v = 0.9 * m[k] + mean[k];
      const double move = kBaselineRate * (mean[k] + 0.9 * v);
      x[k] -= move;
      m[k] = 0.9 * m[k] + 0.1 * move / kBaselineRate;
    }
    run->Step();
    for (size_t k = 0; k < kDimensions; ++k) ASSERT_NEAR(run->model(5)[k], x[k], 1e-11) << step;
  }
}

// The offsets 1, 2, 4 reach everybody: the exact mean after log2(n) messages, and no sooner.
TEST(Baselines, PushSumIsExactAfterLogNMessages) {
  QuadraticGradients problem;
  const auto run =
      MakeBaseline(BaselineKind::kPushSum, OptionsOf(GraphOf(GraphKind::kExponential)), problem);
  run->Step();  // the models differ, and the first message is sent
  problem.silent = true;
  const std::vector<double> mean = MeanOf(*run);
  const auto spread = [&] {
    double worst = 0;
    for (uint32_t i = 0; i < kWorkers; ++i)
      for (size_t k = 0; k < kDimensions; ++k)
        worst = std::max(worst, std::abs(run->model(i)[k] - mean[k]));
    return worst;
  };
  run->Step();
  EXPECT_GT(spread(), 1e-3);
  run->Step();  // the third message
  EXPECT_LT(spread(), 1e-13);
}

// Of eight workers: 16 messages on a ring, one each to the offset, 2 (n - 1) vectors of a ring
// all-reduce.
TEST(Baselines, BytesAreThoseOfTheirMessages) {
  constexpr double kVector = 4.0 * kDimensions;
  BaselineOptions options = OptionsOf(GraphOf(GraphKind::kRing));
  options.compressor.kind = Compressor::Kind::kSign;
  options.messages_a_step = 2;
  const auto bytes = [&](BaselineKind kind) {
    QuadraticGradients problem;
    const auto run = MakeBaseline<double>(kind, options, problem);
    for (int step = 0; step < 3; ++step) run->Step();
    return run->bytes() / 3;
  };
  EXPECT_EQ(bytes(BaselineKind::kAllReduce), 14 * kVector);
  EXPECT_EQ(bytes(BaselineKind::kDPsgd), 16 * kVector);
  EXPECT_EQ(bytes(BaselineKind::kD2), 16 * kVector);
  EXPECT_EQ(bytes(BaselineKind::kGradientTracking), 2 * 16 * kVector);
  EXPECT_EQ(bytes(BaselineKind::kQuasiGlobal), 16 * kVector);
  EXPECT_EQ(bytes(BaselineKind::kPushSum), 2 * 8 * kVector);
  EXPECT_EQ(bytes(BaselineKind::kChoco), 16 * 10.0);  // four bytes and one, twice
  EXPECT_EQ(bytes(BaselineKind::kDeepSqueeze), 16 * 10.0);
}

TEST(Baselines, EveryStepHasItsOwnRate) {
  QuadraticGradients problem;
  BaselineOptions options = OptionsOf(GraphOf(GraphKind::kComplete));
  std::vector<uint64_t> asked;
  options.rate = [&](uint64_t step) {
    if (asked.empty() || asked.back() != step) asked.push_back(step);
    return step == 1 ? 0.0 : kBaselineRate;
  };
  const auto run = MakeBaseline<double>(BaselineKind::kAllReduce, options, problem);
  run->Step();
  const double before = run->model(0)[0];
  run->Step();
  EXPECT_NEAR(run->model(0)[0], before, 1e-14);
  run->Step();
  EXPECT_GT(std::abs(run->model(0)[0] - before), 1e-3);
  EXPECT_EQ(asked, (std::vector<uint64_t>{0, 1, 2}));
}

// Everybody is alone: local descent to an optimum of its own.
TEST(Baselines, NothingArrivesWhenAllIsLost) {
  for (const auto kind : {BaselineKind::kDPsgd, BaselineKind::kPushSum}) {
    QuadraticGradients problem;
    BaselineOptions options = OptionsOf(GraphOf(GraphKind::kRing));
    options.loss = 1;
    const auto run = MakeBaseline(kind, options, problem);
    for (int step = 0; step < 2000; ++step) run->Step();
    for (uint32_t i = 0; i < kWorkers; ++i)
      for (size_t k = 0; k < kDimensions; ++k) EXPECT_NEAR(run->model(i)[k], problem.c[i][k], 1e-9);
  }
}

TEST(Baselines, OneTenthOfTheMessagesIsLost) {
  const auto mean_moves = [](double loss) {
    QuadraticGradients problem;
    BaselineOptions options = OptionsOf(GraphOf(GraphKind::kRing));
    options.loss = loss;
    const auto run = MakeBaseline(BaselineKind::kDPsgd, options, problem);
    run->Step();
    problem.silent = true;
    const std::vector<double> before = MeanOf(*run);
    for (int step = 0; step < 100; ++step) run->Step();
    double moved = 0;
    for (size_t k = 0; k < kDimensions; ++k)
      moved = std::max(moved, std::abs(MeanOf(*run)[k] - before[k]));
    return moved;
  };
  EXPECT_LT(mean_moves(0), 1e-13);
  EXPECT_GT(mean_moves(0.1), 1e-4);  // it is no longer doubly stochastic
}

}  // namespace
}  // namespace crowdsurf::simulator
