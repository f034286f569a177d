// Choco, DeepSqueeze and PowerGossip in lock step against their papers, and the compressors that
// they use.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/paper/quadratic_baselines.h"
#include "worker/core/power/power_layout.h"

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

// Two workers whose first gradients differ by a matrix of rank `rank`, and then none.
class Apart : public Gradients<double> {
 public:
  static constexpr uint32_t kRows = 9, kCols = 7;

  explicit Apart(int rank) {
    Rng rng(kSeed);
    Eigen::MatrixXd left(kRows, rank), right(rank, kCols);
    for (double& v : left.reshaped()) v = rng.Normal();
    for (double& v : right.reshaped()) v = rng.Normal();
    away_ = left * right;
  }
  uint32_t workers() const override { return 2; }
  size_t elements() const override { return size_t{kRows} * kCols; }
  void Start(std::span<double> x) const override { std::fill(x.begin(), x.end(), 0.5); }
  void Take(uint32_t i, std::span<const double>, std::span<double> gradient) override {
    const bool pulls = i == 1 && !std::exchange(pulled_, pulled_ || i == 1);
    for (size_t k = 0; k < gradient.size(); ++k)
      gradient[k] =
          pulls ? away_(static_cast<Eigen::Index>(k / kCols), static_cast<Eigen::Index>(k % kCols))
                : 0;
  }

 private:
  Eigen::MatrixXd away_;
  bool pulled_ = false;
};

BaselineOptions PowerOptionsOf(std::span<const worker::TensorView> tensors, bool warm) {
  BaselineOptions options = OptionsOf(worker::MakeGraph(GraphKind::kChain, 2).value());
  options.power_layout =
      std::make_shared<const worker::PowerLayout>(tensors, Apart::kRows * Apart::kCols, 1);
  options.warm = warm;
  return options;
}

// What the first worker has, less what the other has.
Eigen::MatrixXd Difference(const Baseline<double>& run) {
  Eigen::MatrixXd difference(Apart::kRows, Apart::kCols);
  for (uint32_t row = 0; row < Apart::kRows; ++row)
    for (uint32_t col = 0; col < Apart::kCols; ++col) {
      const size_t k = size_t{row} * Apart::kCols + col;
      difference(row, col) = run.model(0)[k] - run.model(1)[k];
    }
  return difference;
}

TEST(Baselines, PowerGossipOfWholeTensorsIsDPsgd) {
  for (const bool warm : {true, false}) {
    Apart problem(3), same(3);
    const BaselineOptions options = PowerOptionsOf({}, warm);
    const auto run = MakeBaseline<double>(BaselineKind::kPowerGossip, options, problem);
    const auto plain = MakeBaseline<double>(BaselineKind::kDPsgd, options, same);
    for (int step = 0; step < 3; ++step) {
      run->Step();
      plain->Step();
      EXPECT_LT((Difference(*run) - Difference(*plain)).norm(), 1e-12);
    }
    EXPECT_DOUBLE_EQ(run->bytes(), plain->bytes());
  }
}

// Two workers with W = 1/2 take off their difference what they see of it: an orthogonal projection,
// of rank one. Warm factors find a difference of rank one in two exchanges; cold ones see a part.
TEST(Baselines, PowerGossipTakesOffAProjectionOfTheDifference) {
  const worker::TensorView matrix{0, {Apart::kRows, Apart::kCols}};
  for (const bool warm : {true, false}) {
    Apart problem(7);
    const auto run = MakeBaseline<double>(BaselineKind::kPowerGossip,
                                          PowerOptionsOf(std::span(&matrix, 1), warm), problem);
    run->Step();
    for (int step = 0; step < 4; ++step) {
      const Eigen::MatrixXd before = Difference(*run);
      run->Step();
      const Eigen::MatrixXd after = Difference(*run), seen = before - after;
      EXPECT_GT(seen.norm(), 0);
      EXPECT_NEAR((after.array() * seen.array()).sum(), 0, 1e-12);
      EXPECT_LT(seen.jacobiSvd().singularValues()(1), 1e-12) << "of rank one";
    }
  }
  std::map<bool, double> left;
  for (const bool warm : {true, false}) {
    Apart problem(1);
    const auto run = MakeBaseline<double>(BaselineKind::kPowerGossip,
                                          PowerOptionsOf(std::span(&matrix, 1), warm), problem);
    for (int step = 0; step < 3; ++step) run->Step();
    left[warm] = Difference(*run).norm();
    EXPECT_DOUBLE_EQ(run->bytes(), 2 * 4.0 * (warm ? 9 + 7 + 9 : 3 * 9));
  }
  EXPECT_LT(left[true], 1e-12);
  EXPECT_GT(left[false], 0.01);
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
