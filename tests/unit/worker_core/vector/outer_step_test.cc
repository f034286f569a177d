// The outer optimizer's kernels: against numbers by hand, against doubles, and to the bit.
#include "worker/core/vector/outer_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/rng.h"
#include "worker/core/strategy/mix_kernels.h"

namespace crowdsurf::worker {
namespace {

template <class Scalar>
struct Outer {
  OuterRule rule;
  std::vector<Scalar> base, velocity;

  Outer(const OuterRule& of, std::vector<Scalar> begin) : rule(of), base(std::move(begin)) {
    if (rule.momentum > 0) velocity.assign(base.size(), 0);
  }
  void Step(const std::vector<Scalar>& mean) { StepOuter<Scalar>(rule, mean, base, velocity); }
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> Draw(Rng& rng, size_t count, double scale) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(scale * rng.Normal());
  return values;
}

TEST(OuterStepTest, WithRateOneAndNoMomentumTheBaseIsTheMeanToTheBit) {
  Rng rng(7);
  for (const bool nesterov : {false, true}) {
    std::vector<float> mean = Draw(rng, 10'000, 1);
    mean[0] = -0.0F;
    mean[1] = std::numeric_limits<float>::denorm_min();
    mean[2] = std::numeric_limits<float>::max();
    Outer<float> outer({.learning_rate = 1, .momentum = 0, .nesterov = nesterov},
                       Draw(rng, mean.size(), 1e6));
    outer.Step(mean);
    EXPECT_TRUE(SameBits(outer.base, mean));
  }
}

TEST(OuterStepTest, AgainstNumbersByHand) {
  Outer<double> plain({.learning_rate = 0.5, .momentum = 0, .nesterov = false}, {10});
  plain.Step({8});
  EXPECT_DOUBLE_EQ(plain.base[0], 9);  // half of the way
  Outer<double> ball({.learning_rate = 0.5, .momentum = 0.5, .nesterov = false}, {10});
  ball.Step({8});  // v = 2
  EXPECT_DOUBLE_EQ(ball.base[0], 9);
  ball.Step({8});  // v = 1 + 1
  EXPECT_DOUBLE_EQ(ball.velocity[0], 2);
  EXPECT_DOUBLE_EQ(ball.base[0], 8);
  Outer<double> nesterov({.learning_rate = 0.5, .momentum = 0.5, .nesterov = true}, {10});
  nesterov.Step({8});  // v = 2: 10 - .5 (2 + 1)
  EXPECT_DOUBLE_EQ(nesterov.base[0], 8.5);
  nesterov.Step({8});  // v = 1 + .5: 8.5 - .5 (.5 + .75)
  EXPECT_DOUBLE_EQ(nesterov.velocity[0], 1.5);
  EXPECT_DOUBLE_EQ(nesterov.base[0], 7.875);
}

// PyTorch's formulas as its manual has them, in doubles: v = mu v + g; g = g + mu v, or v.
TEST(OuterStepTest, FollowsPyTorchsSgdForFiftySteps) {
  constexpr size_t kElements = 200;
  for (const bool nesterov : {false, true}) {
    for (const double momentum : {0.0, 0.5, 0.9}) {
      Rng rng(11);
      const std::vector<float> begin = Draw(rng, kElements, 1);
      Outer<float> outer({.learning_rate = 0.7, .momentum = momentum, .nesterov = nesterov}, begin);
      std::vector<double> x(begin.begin(), begin.end()), v(kElements, 0);
      double largest = 1;
      for (int step = 0; step < 50; ++step) {
        // What is trained from the base: towards zero, with some noise.
        std::vector<float> mean(kElements);
        for (size_t i = 0; i < kElements; ++i)
          mean[i] = outer.base[i] * 0.9F + 0.01F * static_cast<float>(rng.Normal());
        for (size_t i = 0; i < kElements; ++i) {
          const double gradient = x[i] - static_cast<double>(mean[i]);
          v[i] = momentum * v[i] + gradient;
          x[i] -= 0.7 * (momentum == 0 ? gradient : nesterov ? gradient + momentum * v[i] : v[i]);
          largest = std::max(largest, std::abs(x[i]));
        }
        outer.Step(mean);
        for (size_t i = 0; i < kElements; ++i)
          ASSERT_NEAR(static_cast<double>(outer.base[i]), x[i], 3e-5 * largest)
              << "step " << step << ", momentum " << momentum;
      }
    }
  }
}

TEST(OuterStepTest, TheKernelsOfAHostAreTheseFunctions) {
  Rng rng(3);
  const std::vector<float> begin = Draw(rng, 100, 1), mean = Draw(rng, 100, 1);
  Outer<float> outer({.learning_rate = 0.7, .momentum = 0.9, .nesterov = true}, begin);
  std::vector<float> base = begin, velocity(100, 0), from = mean;
  for (int i = 0; i < 2; ++i) {
    outer.Step(mean);
    const std::vector<std::span<float>> regions = {base, from, velocity};
    RunMixKernel<float>(MixKernel::kOuterStep, regions, outer.rule.scalars());
  }
  EXPECT_TRUE(SameBits(base, outer.base));
  EXPECT_TRUE(SameBits(velocity, outer.velocity));
  const std::vector<std::span<float>> regions = {base, from, velocity};
  RunMixKernel<float>(MixKernel::kOuterBegin, regions, {});
  EXPECT_TRUE(SameBits(base, mean));
  EXPECT_TRUE(SameBits(velocity, std::vector<float>(100, 0)));
  EXPECT_TRUE(SameBits(from, mean)) << "a mean is only read: its round may still serve it";
}

TEST(OuterStepTest, WhatWasTrainedFromAnOldBaseCountsFromTheNewerOne) {
  std::vector<double> fetched = {5, 50}, trained = {2, 30}, base = {1, 20};
  const std::vector<std::span<double>> regions = {fetched, trained, base};
  RunMixKernel<double>(MixKernel::kMoveBase, regions, {});
  EXPECT_EQ(fetched, (std::vector<double>{6, 60}));  // one and ten of its own stay
  EXPECT_EQ(base, (std::vector<double>{5, 50}));
  EXPECT_EQ(trained, (std::vector<double>{2, 30}));
}

}  // namespace
}  // namespace crowdsurf::worker
