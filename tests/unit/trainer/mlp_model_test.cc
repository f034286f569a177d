#include "worker/trainer/mlp_model.h"

#include <cmath>

#include "tests/unit/trainer/gradient_check.h"

namespace crowdsurf::trainer {
namespace {

using Matrix = MlpModel<double>::Matrix;

struct Problem {
  Problem(std::vector<size_t> hidden, uint64_t seed)
      : model(3, std::move(hidden), 4), inputs(3, 5), labels{0, 3, 1, 1, 2} {
    Rng rng(seed);
    for (Eigen::Index i = 0; i < inputs.size(); ++i) inputs(i) = rng.Normal();
    parameters.resize(model.table().elements());
    for (double& p : parameters) p = rng.Normal();
  }
  MlpModel<double> model;
  Matrix inputs;
  std::vector<uint8_t> labels;
  std::vector<double> parameters;
};

TEST(MlpModelTest, GradientMatchesCentralDifferencesAtEveryDepth) {
  const std::vector<std::vector<size_t>> shapes = {{}, {6}, {5, 4}, {4, 3, 5}};
  for (const std::vector<size_t>& hidden : shapes) {
    Problem problem(hidden, 11);
    std::vector<double> gradient(problem.parameters.size());
    problem.model.LossAndGradient(problem.parameters, problem.inputs, problem.labels, gradient);
    const double worst =
        WorstRelativeError(problem.parameters, gradient, [&](std::span<const double> p) {
          size_t correct = 0;
          return problem.model.Loss(p, problem.inputs, problem.labels, correct);
        });
    EXPECT_LT(worst, 1e-6) << hidden.size() << " hidden layers";
  }
}

TEST(MlpModelTest, LinearClassifierIsSoftmaxRegressionByHand) {
  MlpModel<double> model(1, {}, 2);
  const std::vector<double> p = {2.0, -1.0, 0.5, 0.25};  // weights, biases
  const Matrix x = Matrix::Constant(1, 1, 1.5);
  const double a = 2.0 * 1.5 + 0.5, b = -1.0 * 1.5 + 0.25;
  const double share = std::exp(b) / (std::exp(a) + std::exp(b));
  std::vector<double> gradient(4);
  const std::vector<uint8_t> label = {1};
  EXPECT_NEAR(model.LossAndGradient(p, x, label, gradient), -std::log(share), 1e-12);
  EXPECT_NEAR(gradient[0], (1 - share) * 1.5, 1e-12);
  EXPECT_NEAR(gradient[1], (share - 1) * 1.5, 1e-12);
  EXPECT_NEAR(gradient[2], 1 - share, 1e-12);
  EXPECT_NEAR(gradient[3], share - 1, 1e-12);
}

TEST(MlpModelTest, EveryHiddenWidthIsOneUnitGroupOnAllItsAxes) {
  const MlpModel<float> model(64, {32, 16}, 10);
  const auto groups = [&](const char* name) {
    const TensorSpec* tensor = model.table().Find(name);
    return std::pair(tensor->group_out, tensor->group_in);
  };
  EXPECT_EQ(groups("dense0.weight"), std::pair(0, -1));
  EXPECT_EQ(groups("dense0.bias"), std::pair(0, -1));
  EXPECT_EQ(groups("dense1.weight"), std::pair(1, 0));
  EXPECT_EQ(groups("dense1.bias"), std::pair(1, -1));
  EXPECT_EQ(groups("dense2.weight"), std::pair(-1, 1));
  EXPECT_EQ(groups("dense2.bias"), std::pair(-1, -1));
  EXPECT_EQ(model.table().Find("dense1.weight")->shape, (std::vector<size_t>{16, 32}));
}

// Hidden units may be renamed: permuting a group along all axes that carry it changes nothing. So
// the groups name the right axes.
TEST(MlpModelTest, PermutingAUnitGroupLeavesTheFunctionAlone) {
  MlpModel<double> model(3, {4, 5}, 4);
  Problem problem({4, 5}, 21);
  const std::vector<size_t> order = {2, 0, 3, 1};
  std::vector<double> permuted(problem.parameters.size());
  for (const TensorSpec& t : model.table().tensors()) {
    const size_t cols = t.shape.size() > 1 ? t.shape[1] : 1;
    for (size_t i = 0; i < t.elements(); ++i) {
      const size_t row = t.group_out == 0 ? order[i / cols] : i / cols;
      const size_t col = t.group_in == 0 ? order[i % cols] : i % cols;
      permuted[t.offset + i] = problem.parameters[t.offset + row * cols + col];
    }
  }
  size_t correct = 0;
  EXPECT_NEAR(model.Loss(permuted, problem.inputs, problem.labels, correct),
              model.Loss(problem.parameters, problem.inputs, problem.labels, correct), 1e-12);
}

}  // namespace
}  // namespace crowdsurf::trainer
