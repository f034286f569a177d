// Optimizers against steps by hand, and against the papers' algorithms written down again in
// double.
#include "worker/trainer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace crowdsurf::trainer {
namespace {

ParameterTable TwoTensors() {
  ParameterTable table;
  table.Add("a", {2});
  table.Add("b", {1});
  return table;
}

OptimizerOptions Sgd(double momentum, bool nesterov) {
  OptimizerOptions options;
  options.kind = OptimizerKind::kSgd;
  options.momentum = momentum;
  options.nesterov = nesterov;
  return options;
}

TEST(OptimizerTest, SgdWithMomentumTwoStepsByHand) {
  const ParameterTable table = TwoTensors();
  Optimizer optimizer(Sgd(0.5, false), table);
  std::vector<float> p = {1, 2, 3};
  optimizer.Step(0.1, std::vector<float>{1, 0, -2}, p);  // v = g
  EXPECT_FLOAT_EQ(p[0], 0.9f);
  EXPECT_FLOAT_EQ(p[1], 2.0f);
  EXPECT_FLOAT_EQ(p[2], 3.2f);
  optimizer.Step(0.1, std::vector<float>{1, 1, 1}, p);  // v = 0.5 v + g = 1.5, 1, 0
  EXPECT_FLOAT_EQ(p[0], 0.75f);
  EXPECT_FLOAT_EQ(p[1], 1.9f);
  EXPECT_FLOAT_EQ(p[2], 3.2f);
}

TEST(OptimizerTest, NesterovLooksAheadByTheMomentum) {
  const ParameterTable table = TwoTensors();
  Optimizer optimizer(Sgd(0.5, true), table);
  std::vector<float> p = {1, 2, 3};
  optimizer.Step(0.1, std::vector<float>{1, 0, -2}, p);  // p -= 0.1 (g + 0.5 v), v = g
  EXPECT_FLOAT_EQ(p[0], 0.85f);
  EXPECT_FLOAT_EQ(p[2], 3.3f);
}

TEST(OptimizerTest, SgdWithoutMomentumDecaysWeightsThroughTheGradient) {
  const ParameterTable table = TwoTensors();
  OptimizerOptions options = Sgd(0, false);
  options.weight_decay = 0.5;
  Optimizer optimizer(options, table);
  std::vector<float> p = {1, 2, 3};
  optimizer.Step(0.1, std::vector<float>{1, 0, 0}, p);
  EXPECT_FLOAT_EQ(p[0], 0.85f);
  EXPECT_FLOAT_EQ(p[1], 1.9f);
}

// The algorithms of the papers, written down in double for one tensor.
struct Reference {
  std::vector<double> p, m, v;
  int t = 0;
  explicit Reference(std::vector<double> start)
      : p(std::move(start)), m(p.size(), 0), v(p.size(), 0) {}
  std::vector<double> Direction(const std::vector<double>& g, const OptimizerOptions& o) {
    ++t;
    std::vector<double> out;
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i];
      out.push_back(m[i] / (1 - std::pow(o.beta1, t)) /
                    (std::sqrt(v[i] / (1 - std::pow(o.beta2, t))) + o.epsilon));
    }
    return out;
  }
  void Adam(double lr, const std::vector<double>& g, const OptimizerOptions& o) {
    const auto d = Direction(g, o);
    for (size_t i = 0; i < p.size(); ++i) p[i] -= lr * (d[i] + o.weight_decay * p[i]);
  }
  void Lamb(double lr, const std::vector<double>& g, const OptimizerOptions& o) {
    auto d = Direction(g, o);
    double length = 0, step = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      d[i] += o.weight_decay * p[i];
      length += p[i] * p[i];
      step += d[i] * d[i];
    }
    const double trust = length > 0 && step > 0 ? std::sqrt(length / step) : 1;
    for (size_t i = 0; i < p.size(); ++i) p[i] -= lr * trust * d[i];
  }
};

void ExpectFollows(OptimizerKind kind, double weight_decay) {
  const ParameterTable table = TwoTensors();
  OptimizerOptions options;
  options.kind = kind;
  options.weight_decay = weight_decay;
  Optimizer optimizer(options, table);
  std::vector<float> p = {0.5f, -1.5f, 0.0f};  // b starts at zero: LAMB's trust ratio is then 1
  Reference a({0.5, -1.5}), b({0.0});
  Rng rng(5);
  for (int step = 0; step < 20; ++step) {
    const std::vector<double> g = {rng.Normal(), rng.Normal(), rng.Normal()};
    optimizer.Step(0.01, std::vector<float>(g.begin(), g.end()), p);
    for (auto [reference, part] : {std::pair(&a, std::vector<double>{g[0], g[1]}),
                                   std::pair(&b, std::vector<double>{g[2]})}) {
      if (kind == OptimizerKind::kAdam) {
        reference->Adam(0.01, part, options);
      } else {
        reference->Lamb(0.01, part, options);
      }
    }
    EXPECT_NEAR(p[0], a.p[0], 1e-5) << "step " << step;
    EXPECT_NEAR(p[1], a.p[1], 1e-5) << "step " << step;
    EXPECT_NEAR(p[2], b.p[0], 1e-5) << "step " << step;
  }
}

TEST(OptimizerTest, AdamFollowsThePaper) { ExpectFollows(OptimizerKind::kAdam, 0); }
TEST(OptimizerTest, AdamDecaysWeightsBesideTheMoments) { ExpectFollows(OptimizerKind::kAdam, 0.1); }
TEST(OptimizerTest, LambFollowsThePaper) { ExpectFollows(OptimizerKind::kLamb, 0.01); }

TEST(OptimizerTest, FirstAdamStepIsTheLearningRateWhateverTheGradient) {
  const ParameterTable table = TwoTensors();
  Optimizer optimizer({}, table);
  std::vector<float> p = {0, 0, 0};
  optimizer.Step(0.125, std::vector<float>{1e-3f, -50.0f, 7.0f}, p);
  EXPECT_NEAR(p[0], -0.125, 2e-6);
  EXPECT_NEAR(p[1], 0.125, 1e-6);
  EXPECT_NEAR(p[2], -0.125, 1e-6);
}

TEST(OptimizerTest, SavedStateGoesOnWithEqualBits) {
  const ParameterTable table = TwoTensors();
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kLamb}) {
    OptimizerOptions options;
    options.kind = kind;
    Optimizer first(options, table), second(options, table);
    std::vector<float> p = {1, 2, 3};
    const std::vector<float> g = {0.5f, -0.25f, 2.0f};
    for (int i = 0; i < 3; ++i) first.Step(0.01, g, p);
    ByteWriter out;
    first.Save(out);
    ByteReader in(out.bytes());
    ASSERT_TRUE(second.Load(in).ok());
    EXPECT_TRUE(in.Done());
    std::vector<float> q = p;
    first.Step(0.01, g, p);
    second.Step(0.01, g, q);
    EXPECT_EQ(p, q);
    EXPECT_EQ(second.steps(), 4u);
  }
}

TEST(OptimizerTest, StateOfAnotherOptimizerLengthOrCutShortIsRefusedAndChangesNothing) {
  const ParameterTable table = TwoTensors();
  ParameterTable longer = TwoTensors();
  longer.Add("c", {1});
  Optimizer adam({}, table), other({}, longer), sgd(Sgd(0.9, false), table);
  ByteWriter out;
  adam.Save(out);
  const Bytes saved = out.Take();
  for (Optimizer* wrong : {&other, &sgd}) {
    ByteReader in(saved);
    EXPECT_FALSE(wrong->Load(in).ok());
  }
  for (size_t length = 0; length < saved.size(); ++length) {
    ByteReader in(ByteView(saved).first(length));
    EXPECT_FALSE(adam.Load(in).ok()) << length;
  }
  EXPECT_EQ(adam.steps(), 0u);
}

TEST(OptimizerTest, ARepairedSecondMomentMakesNoHugeStepAndATrainedOneStays) {
  const ParameterTable table = TwoTensors();
  Rng rng(9);
  for (const float left : {0.0f, -5.0f}) {
    Optimizer optimizer(OptimizerOptions{}, table);
    std::vector<float> p = {0, 0, 0};
    for (int step = 0; step < 30; ++step) {
      const std::vector<double> g = {rng.Normal(), 1 + rng.Normal(), 1e-3};
      optimizer.Step(0.01, std::vector<float>(g.begin(), g.end()), p);
      const std::vector<float> before(optimizer.moment(1).begin(), optimizer.moment(1).end());
      optimizer.RepairMoments();
      for (size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(optimizer.moment(1)[i], before[i]);
    }
    // As an average leaves it that came late, or through Float16.
    std::fill(optimizer.moment(1).begin(), optimizer.moment(1).end(), left);
    optimizer.RepairMoments();
    const std::vector<float> before = p;
    optimizer.Step(0.01, std::vector<float>(3, 0.0f), p);
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(std::abs(p[i] - before[i]), 2 * 0.01f);
  }
}

TEST(ClipByNormTest, LongGradientsAreShortenedOthersAreLeftAlone) {
  std::vector<float> g = {3, 4};
  EXPECT_FLOAT_EQ(static_cast<float>(ClipByNorm(10, g)), 5);
  EXPECT_EQ(g, (std::vector<float>{3, 4}));
  EXPECT_FLOAT_EQ(static_cast<float>(ClipByNorm(1, g)), 5);
  EXPECT_FLOAT_EQ(g[0], 0.6f);
  EXPECT_FLOAT_EQ(g[1], 0.8f);
  EXPECT_FLOAT_EQ(static_cast<float>(ClipByNorm(0, g)), 1);
  EXPECT_FLOAT_EQ(g[1], 0.8f);
  std::vector<float> bad = {std::numeric_limits<float>::quiet_NaN(), 1};
  EXPECT_TRUE(std::isnan(ClipByNorm(0.5, bad)));
  EXPECT_EQ(bad[1], 1);
}

}  // namespace
}  // namespace crowdsurf::trainer
