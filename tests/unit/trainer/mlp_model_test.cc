// Gradients against central differences in double, a linear classifier by hand, sub-networks
// against the whole model.
#include "worker/trainer/mlp_model.h"

#include <cmath>

#include "tests/unit/trainer/gradient_check.h"
#include "worker/core/subnet/subnet.h"

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
    std::pair<int, int> groups_of(-1, -1);  // of rows and columns
    for (const worker::UnitAxis& cut : model.table().Find(name)->units)
      (cut.axis == 0 ? groups_of.first : groups_of.second) = static_cast<int>(cut.group);
    return groups_of;
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
      size_t row = i / cols, col = i % cols;
      for (const worker::UnitAxis& cut : t.units) {
        size_t& index = cut.axis == 0 ? row : col;
        if (cut.group == 0) index = order[index];
      }
      permuted[t.offset + i] = problem.parameters[t.offset + row * cols + col];
    }
  }
  size_t correct = 0;
  EXPECT_NEAR(model.Loss(permuted, problem.inputs, problem.labels, correct),
              model.Loss(problem.parameters, problem.inputs, problem.labels, correct), 1e-12);
}

// A sub-network is the whole model with mask times scale on its hidden activations: columns that
// read an absent unit are zero, the others are scaled. The oracle is the whole model's own code.
TEST(MlpModelTest, ASubnetIsTheWholeModelWithMaskTimesScale) {
  const std::vector<size_t> hidden = {6, 5};
  const worker::IndexSets sets = {{0, {1, 4, 5}}, {1, {0, 3}}};
  const double scale[] = {6 / 3.0, 5 / 2.0};
  Problem problem(hidden, 31);
  const auto schema = problem.model.table().units();
  const worker::Subnet subnet(schema, sets);
  std::vector<double> masked = problem.parameters, factor(masked.size(), 1.0);
  for (const TensorSpec& t : problem.model.table().tensors()) {
    for (const worker::UnitAxis& cut : t.units) {
      if (cut.axis == 0) continue;
      for (size_t i = 0; i < t.elements(); ++i) {
        const bool active = std::ranges::count(sets.at(cut.group), i % t.shape[1]) > 0;
        factor[t.offset + i] = active ? scale[cut.group] : 0;
        masked[t.offset + i] *= factor[t.offset + i];
      }
    }
  }
  std::vector<double> whole(masked.size()), packed(subnet.size()), own(subnet.size());
  const double loss = problem.model.LossAndGradient(masked, problem.inputs, problem.labels, whole);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] *= factor[i];
  MlpModel<double> model = problem.model.SubnetOf(sets);
  ASSERT_EQ(model.table().elements(), subnet.size());
  subnet.Gather(std::span<const double>(problem.parameters), std::span(packed));
  size_t correct = 0;
  EXPECT_NEAR(model.Loss(packed, problem.inputs, problem.labels, correct), loss, 1e-12);
  EXPECT_NEAR(model.LossAndGradient(packed, problem.inputs, problem.labels, own), loss, 1e-12);
  std::vector<double> expected(subnet.size());
  subnet.Gather(std::span<const double>(whole), std::span(expected));
  for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], expected[i], 1e-12) << i;
}

TEST(MlpModelTest, GradientOfAScaledModelMatchesCentralDifferences) {
  Problem problem({5, 4}, 41);
  MlpModel<double> model(3, {5, 4}, 4, {2.5, 4.0});
  std::vector<double> gradient(problem.parameters.size());
  model.LossAndGradient(problem.parameters, problem.inputs, problem.labels, gradient);
  const double worst =
      WorstRelativeError(problem.parameters, gradient, [&](std::span<const double> p) {
        size_t correct = 0;
        return model.Loss(p, problem.inputs, problem.labels, correct);
      });
  EXPECT_LT(worst, 1e-6);
}

}  // namespace
}  // namespace crowdsurf::trainer
