// Gradients against central differences in double, the function against its equations by hand,
// sub-networks against the whole model.
#include "worker/trainer/gru_model.h"

#include <cmath>

#include "tests/unit/trainer/gradient_check.h"
#include "worker/core/subnet/subnet.h"

namespace crowdsurf::trainer {
namespace {

constexpr size_t kVocabulary = 5, kHidden = 4, kTime = 6, kWidth = 3;

std::vector<uint8_t> RandomTokens(size_t count, Rng& rng) {
  std::vector<uint8_t> tokens(count);
  for (uint8_t& t : tokens) t = static_cast<uint8_t>(rng.Uniform(kVocabulary));
  return tokens;
}

struct Problem {
  explicit Problem(uint64_t seed) : rng(seed), model(kVocabulary, kHidden) {
    inputs = RandomTokens(kTime * kWidth, rng);
    targets = RandomTokens(kTime * kWidth, rng);
    parameters.resize(model.table().elements());
    // Larger than training starts from, so that the gates are far from their linear range.
    for (double& p : parameters) p = rng.Normal();
    start.resize(kHidden, kWidth);
    for (Eigen::Index i = 0; i < start.size(); ++i) start(i) = 0.5 * rng.Normal();
  }
  TokenBatch batch() const {
    return {.time = kTime, .width = kWidth, .inputs = inputs, .targets = targets};
  }
  Rng rng;
  GruModel<double> model;
  std::vector<uint8_t> inputs, targets;
  std::vector<double> parameters;
  GruModel<double>::Matrix start;  // the windows' first state
};

TEST(GruModelTest, GradientMatchesCentralDifferences) {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    Problem problem(seed);
    std::vector<double> gradient(problem.parameters.size());
    GruModel<double>::Matrix start = problem.start;
    problem.model.LossAndGradient(problem.parameters, problem.batch(), start, gradient);
    const double worst =
        WorstRelativeError(problem.parameters, gradient, [&](std::span<const double> p) {
          GruModel<double>::Matrix state = problem.start;
          return problem.model.Loss(p, problem.batch(), state);
        });
    EXPECT_LT(worst, 1e-6) << "seed " << seed;
  }
}

// A sub-network is the whole model in which nobody reads the state of an absent unit, and the
// others' are scaled where a matrix reads them. The oracle is the whole model's own code.
TEST(GruModelTest, ASubnetIsTheWholeModelWithMaskTimesScale) {
  Problem problem(4);
  const worker::IndexSets sets = {{0, {0, 1, 3}}};
  const double scale = 4 / 3.0;
  const worker::Subnet subnet(problem.model.table().units(), sets);
  std::vector<double> masked = problem.parameters, factor(masked.size(), 1.0);
  for (const char* name : {"gru.recurrent.weight", "output.weight"}) {
    const TensorSpec* t = problem.model.table().Find(name);
    for (size_t i = 0; i < t->elements(); ++i) {
      factor[t->offset + i] = i % kHidden == 2 ? 0 : scale;
      masked[t->offset + i] *= factor[t->offset + i];
    }
  }
  GruModel<double>::Matrix state = problem.start, own_state(3, kWidth);
  own_state << problem.start.row(0), problem.start.row(1), problem.start.row(3);
  std::vector<double> whole(masked.size()), packed(subnet.size()), own(subnet.size());
  const double loss = problem.model.LossAndGradient(masked, problem.batch(), state, whole);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] *= factor[i];
  GruModel<double> model = problem.model.SubnetOf(sets);
  ASSERT_EQ(model.table().elements(), subnet.size());
  subnet.Gather(std::span<const double>(problem.parameters), std::span(packed));
  EXPECT_NEAR(model.LossAndGradient(packed, problem.batch(), own_state, own), loss, 1e-12);
  EXPECT_NEAR((own_state.row(2) - state.row(3)).norm(), 0, 1e-12);
  std::vector<double> expected(subnet.size());
  subnet.Gather(std::span<const double>(whole), std::span(expected));
  for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], expected[i], 1e-12) << i;
}

TEST(GruModelTest, GradientOfAScaledModelMatchesCentralDifferences) {
  Problem problem(5);
  GruModel<double> model(kVocabulary, kHidden, 2.5);
  std::vector<double> gradient(problem.parameters.size());
  GruModel<double>::Matrix start = problem.start;
  model.LossAndGradient(problem.parameters, problem.batch(), start, gradient);
  const double worst =
      WorstRelativeError(problem.parameters, gradient, [&](std::span<const double> p) {
        GruModel<double>::Matrix state = problem.start;
        return model.Loss(p, problem.batch(), state);
      });
  EXPECT_LT(worst, 1e-6);
}

// Hidden units may be renamed: permuting the group along all axes that carry it changes nothing.
TEST(GruModelTest, PermutingTheUnitGroupLeavesTheFunctionAlone) {
  Problem problem(6);
  const std::vector<size_t> order = {2, 0, 3, 1};
  std::vector<double> permuted(problem.parameters.size());
  for (const TensorSpec& t : problem.model.table().tensors()) {
    const size_t cols = t.shape.size() > 1 ? t.shape[1] : 1;
    for (size_t i = 0; i < t.elements(); ++i) {
      size_t row = i / cols, col = i % cols;
      for (const worker::UnitAxis& cut : t.units) {
        size_t& index = cut.axis == 0 ? row : col;
        index = index / kHidden * kHidden + order[index % kHidden];
      }
      permuted[t.offset + i] = problem.parameters[t.offset + row * cols + col];
    }
  }
  GruModel<double>::Matrix state = problem.start, renamed = state;
  for (Eigen::Index unit = 0; unit < renamed.rows(); ++unit)
    renamed.row(unit) = state.row(static_cast<Eigen::Index>(order[static_cast<size_t>(unit)]));
  EXPECT_NEAR(problem.model.Loss(permuted, problem.batch(), renamed),
              problem.model.Loss(problem.parameters, problem.batch(), state), 1e-12);
}

TEST(GruModelTest, TheCheckerSeesAWrongGradient) {
  Problem problem(1);
  std::vector<double> gradient(problem.parameters.size());
  GruModel<double>::Matrix start = problem.start;
  problem.model.LossAndGradient(problem.parameters, problem.batch(), start, gradient);
  gradient[7] *= 1.001;
  const double worst =
      WorstRelativeError(problem.parameters, gradient, [&](std::span<const double> p) {
        GruModel<double>::Matrix state = problem.start;
        return problem.model.Loss(p, problem.batch(), state);
      });
  EXPECT_GT(worst, 1e-4);
}

// One unit, two tokens, one step, by hand from the equations.
TEST(GruModelTest, OneUnitOneStepIsWhatTheEquationsSay) {
  GruModel<double> model(2, 1);
  //                      input rows r z c        recurrent   bias           output    its bias
  const std::vector<double> p = {.1, .2, .3, .4, .5, .6, .7, .8, .9, .01, .02, .03, 1, -1, .5, .25};
  const double h = 0.5;
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double r = sigmoid(.4 + .7 * h + .01), z = sigmoid(.5 + .8 * h + .02);
  const double c = std::tanh(.6 + .03 + r * (.9 * h));
  const double next = z * h + (1 - z) * c;
  GruModel<double>::Vector state = GruModel<double>::Vector::Constant(1, h);
  const auto logits = model.Advance(p, 1, state);
  EXPECT_NEAR(state(0), next, 1e-15);
  EXPECT_NEAR(logits(0), next + .5, 1e-15);
  EXPECT_NEAR(logits(1), -next + .25, 1e-15);
}

TEST(GruModelTest, ALongTextInPiecesCostsWhatItCostsAtOnce) {
  Problem problem(4);
  GruModel<double>::Matrix state = GruModel<double>::Matrix::Zero(kHidden, kWidth);
  const double whole = problem.model.Loss(problem.parameters, problem.batch(), state);
  GruModel<double>::Matrix carried = GruModel<double>::Matrix::Zero(kHidden, kWidth);
  double pieces = 0;
  for (size_t t = 0; t < kTime; t += 2) {
    const TokenBatch piece{.time = 2,
                           .width = kWidth,
                           .inputs = std::span(problem.inputs).subspan(t * kWidth, 2 * kWidth),
                           .targets = std::span(problem.targets).subspan(t * kWidth, 2 * kWidth)};
    pieces += problem.model.Loss(problem.parameters, piece, carried) / 3;
  }
  EXPECT_NEAR(pieces, whole, 1e-12);
  EXPECT_LT((carried - state).norm(), 1e-12);
}

TEST(GruModelTest, EqualSeedsInitializeEqualBitsAndOthersDoNot) {
  const GruModel<float> model(100, 16);
  std::vector<float> a(model.table().elements()), b(a.size()), c(a.size());
  model.Initialize(Rng(7), a);
  model.Initialize(Rng(7), b);
  model.Initialize(Rng(8), c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(GruModelTest, DefaultModelStaysBelowAQuarterOfAMillionParameters) {
  EXPECT_LT(GruModel<float>(256, 128).table().elements(), 250'000u);
}

}  // namespace
}  // namespace crowdsurf::trainer
