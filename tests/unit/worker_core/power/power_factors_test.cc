// The factors of one matrix at the two ends of an edge, and which tensors get any.
// Against plain gossip, what a projection must be, and sizes in closed form.
#include "worker/core/power/power_factors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "worker/core/power/power_edge.h"
#include "worker/core/power/power_layout.h"

namespace crowdsurf::worker {
namespace {

using Matrix = std::vector<double>;

Matrix Normal(MatrixShape shape, uint64_t seed) {
  Rng rng(seed);
  Matrix out(size_t{shape.rows} * shape.cols);
  for (double& v : out) v = rng.Normal();
  return out;
}

double Distance(const Matrix& a, const Matrix& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// Both ends of one edge, each with factors of its own.
template <class Scalar = double>
struct Pair {
  Pair(MatrixShape shape, uint32_t rank, NullColumns null_columns = NullColumns::kKeep)
      : low(shape, rank, Rng(7), null_columns), high(shape, rank, Rng(7), null_columns) {}

  void Iterate(std::vector<Scalar>& x_low, std::vector<Scalar>& x_high, Scalar weight) {
    std::vector<Scalar> u_low(low.MessageSize()), u_high(high.MessageSize());
    low.Project(x_low, u_low);
    high.Project(x_high, u_high);
    low.Apply(u_low, u_high, weight, x_low);
    high.Apply(u_low, u_high, -weight, x_high);
  }

  PowerFactors<Scalar> low, high;
};

TEST(PowerFactorsTest, TwoEndsThatDifferByRankOneAgreeAfterTheSecondIteration) {
  const MatrixShape shape{5, 7};
  Matrix low = Normal(shape, 1), high = low;
  const Matrix p = Normal({5, 1}, 2), q = Normal({7, 1}, 3);
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 7; ++j) high[i * 7 + j] += p[i] * q[j];
  }
  Pair pair(shape, 1);
  pair.Iterate(low, high, 0.5);
  EXPECT_GT(Distance(low, high), 0.1);
  pair.Iterate(low, high, 0.5);
  EXPECT_LT(Distance(low, high), 1e-13);
}

TEST(PowerFactorsTest, FactorsOfFullRankArePlainGossip) {
  const MatrixShape shape{6, 6};
  Matrix low = Normal(shape, 1), high = Normal(shape, 2), plain_low = low, plain_high = high;
  Pair pair(shape, 6);
  for (int k = 0; k < 4; ++k) {
    pair.Iterate(low, high, 1.0 / 3);
    for (size_t i = 0; i < low.size(); ++i) {
      const double step = (plain_high[i] - plain_low[i]) / 3;
      plain_low[i] += step;
      plain_high[i] -= step;
    }
    EXPECT_LT(Distance(low, plain_low), 1e-13) << k;
    EXPECT_LT(Distance(high, plain_high), 1e-13) << k;
  }
}

// The estimate is an orthogonal projection of the difference: it is never longer than that, and
// what is left is orthogonal to it.
TEST(PowerFactorsTest, TheEstimateIsAProjection) {
  const MatrixShape shape{9, 4};
  for (const uint32_t rank : {1U, 2U, 3U}) {
    Matrix low = Normal(shape, 4), high = Normal(shape, 5);
    Pair pair(shape, rank);
    for (int k = 0; k < 6; ++k) {
      const Matrix low_before = low, high_before = high;
      pair.Iterate(low, high, 1.0);
      double estimate = 0, across = 0;
      for (size_t i = 0; i < low.size(); ++i) {
        const double moved = low[i] - low_before[i];
        const double rest = high_before[i] - low_before[i] - moved;
        estimate += moved * moved;
        across += moved * rest;
        EXPECT_NEAR(low[i] + high[i], low_before[i] + high_before[i], 1e-14);
      }
      EXPECT_NEAR(across, 0, 1e-12 * estimate + 1e-24) << "rank " << rank << " iteration " << k;
      high = high_before;  // only the estimates improve
      low = low_before;
    }
  }
}

TEST(PowerFactorsTest, WhichEndIsLowChangesNoBit) {
  const MatrixShape shape{8, 5};
  std::vector<float> a(40), b(40);
  Rng rng(9);
  for (float& v : a) v = static_cast<float>(rng.Normal());
  for (float& v : b) v = static_cast<float>(rng.Normal());
  std::vector<float> other_a = a, other_b = b;
  Pair<float> pair(shape, 2), swapped(shape, 2);
  for (int k = 0; k < 10; ++k) {
    pair.Iterate(a, b, 0.25F);
    swapped.Iterate(other_b, other_a, 0.25F);
    EXPECT_EQ(a, other_a) << k;
    EXPECT_EQ(b, other_b) << k;
    EXPECT_TRUE(std::ranges::equal(pair.low.p(), pair.high.p())) << k;
    EXPECT_TRUE(std::ranges::equal(pair.low.q(), pair.high.q())) << k;
  }
}

// Every view begins at consensus: the first projections are null.
TEST(PowerFactorsTest, ConsensusDoesNotKillTheEdge) {
  const MatrixShape shape{6, 5};
  const Matrix apart = Normal(shape, 3);
  for (const NullColumns rule : {NullColumns::kKeep, NullColumns::kOverwrite}) {
    Matrix low = Normal(shape, 1), high = low;
    Pair pair(shape, 1, rule);
    for (int k = 0; k < 2; ++k) pair.Iterate(low, high, 0.5);
    EXPECT_EQ(low, high);
    for (size_t i = 0; i < low.size(); ++i) low[i] += apart[i];
    const double before = Distance(low, high);
    for (int k = 0; k < 200; ++k) pair.Iterate(low, high, 0.5);
    if (rule == NullColumns::kKeep) {
      EXPECT_LT(Distance(low, high), 1e-6 * before);
    } else {
      EXPECT_EQ(Distance(low, high), before) << "the released code's rule stopped to be one";
    }
  }
}

TEST(PowerFactorsTest, AColumnThatStaysNullIsDrawnAnew) {
  const MatrixShape shape{6, 5};
  Matrix low = Normal(shape, 1), high = low;
  Pair pair(shape, 1);
  for (int k = 0; k < 2; ++k) pair.Iterate(low, high, 0.5);
  EXPECT_EQ(pair.low.reseeded_columns(), 0u);
  pair.Iterate(low, high, 0.5);
  EXPECT_EQ(pair.low.reseeded_columns(), 1u);
  EXPECT_EQ(pair.high.reseeded_columns(), 1u);
  EXPECT_TRUE(std::ranges::equal(pair.low.p(), pair.high.p()));
}

// Of a difference of rank one only one column of the next projector is independent.
TEST(PowerFactorsTest, ParallelColumnsAreDrawnAnewAtBothEnds) {
  const MatrixShape shape{10, 10};
  Matrix low(100, 0.0), high(100);
  for (size_t i = 0; i < 10; ++i) {
    for (size_t j = 0; j < 10; ++j) high[i * 10 + j] = static_cast<double>((i + 1) * (j + 1));
  }
  Pair pair(shape, 3);
  for (int k = 0; k < 8; ++k) pair.Iterate(low, high, 0.25);
  EXPECT_TRUE(std::ranges::equal(pair.low.p(), pair.high.p()));
  EXPECT_TRUE(std::ranges::equal(pair.low.q(), pair.high.q()));
  EXPECT_LT(Distance(low, high), 3);  // of 385: a half of the rest in each iteration, at rank one
  for (const double v : low) EXPECT_TRUE(std::isfinite(v));
}

TEST(PowerLayoutTest, MatricesTravelAsFactorsWhereThatIsHalfAsLong) {
  // A vector; just short enough; just not; with a hole before it; too flat.
  const std::vector<TensorView> tensors{
      {0, {50, 1}}, {50, {4, 4}}, {66, {5, 3}}, {100, {10, 20}}, {310, {2, 100}}};
  const PowerLayout layout(tensors, 520, 1);
  ASSERT_EQ(layout.matrices().size(), 2u);
  EXPECT_EQ(layout.matrices()[0].tensor.begin, 50u);
  EXPECT_EQ(layout.matrices()[1].tensor.begin, 100u);
  EXPECT_EQ(layout.whole(), (std::vector<Extent>{{0, 50}, {66, 34}, {300, 220}}));
}

TEST(PowerLayoutTest, AMessageHasTheLengthOfTheClosedForm) {
  const std::vector<TensorView> tensors{{0, {114, 128}}, {14'592, {384, 128}}, {63'744, {384, 1}}};
  const PowerLayout layout(tensors, 64'128, 2);
  EXPECT_EQ(layout.whole_elements(), 384u);
  EXPECT_EQ(layout.MessageSize(1), 2 * (114 + 384) + 384u);
  EXPECT_EQ(layout.MessageSize(2), 2 * (128 + 128) + 384u);
}

TEST(PowerEdgeTest, WhatTravelsWholeIsPlainGossip) {
  const std::vector<TensorView> tensors{{0, {8, 8}}, {64, {5, 1}}};
  const auto layout = std::make_shared<const PowerLayout>(tensors, 69, 1);
  PowerEdge<double> low(layout, Rng(3)), high(layout, Rng(3));
  Matrix a = Normal({69, 1}, 1), b = Normal({69, 1}, 2);
  const Matrix a_before = a, b_before = b;
  for (int k = 1; k <= 3; ++k) {
    Matrix u_low(low.MessageSize()), u_high(high.MessageSize());
    low.Project(a, u_low);
    high.Project(b, u_high);
    low.Apply(u_low, u_high, 0.25, a);
    high.Apply(u_low, u_high, -0.25, b);
    EXPECT_EQ(low.iteration(), static_cast<uint64_t>(k) + 1);
  }
  for (size_t i = 0; i < 69; ++i) {
    EXPECT_NEAR(a[i] + b[i], a_before[i] + b_before[i], 1e-13);
    if (i >= 64) {
      EXPECT_NEAR(a[i] - b[i], (a_before[i] - b_before[i]) / 8, 1e-14) << i;
    }
  }
}

}  // namespace
}  // namespace crowdsurf::worker
