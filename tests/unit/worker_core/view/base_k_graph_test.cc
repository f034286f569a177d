// The Base-(k+1) graph against the theorem of its paper (Takezawa et al. 2023): its rounds are run,
// and everybody must hold the mean.
#include "worker/core/view/base_k_graph.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/rng.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::worker {
namespace {

// Values after all rounds, each computed from the values before it.
std::vector<double> Mixed(const std::vector<std::vector<WeightedEdge>>& rounds,
                          std::vector<double> values) {
  for (const auto& round : rounds) {
    std::vector<double> next = values;
    for (const WeightedEdge& edge : round) {
      next[edge.a] += edge.weight * (values[edge.b] - values[edge.a]);
      next[edge.b] += edge.weight * (values[edge.a] - values[edge.b]);
    }
    values = next;
  }
  return values;
}

// The paper's theorem: the exact mean in finite time, at most 2 log_(k+1)(n) + 2 rounds, with at
// most k neighbours in each.
TEST(BaseKGraphTest, EverybodyHoldsTheMeanAfterAllRoundsForAnyCount) {
  for (uint32_t k = 1; k <= 5; ++k) {
    for (uint32_t n = 1; n <= 130; ++n) {
      const auto rounds = BaseKRounds(n, k).value();
      EXPECT_LE(static_cast<double>(rounds.size()), 2 * std::log(n) / std::log(k + 1) + 2 + 1e-9)
          << n << " k " << k;
      Rng rng(n * 10 + k);
      std::vector<double> values(n);
      double mean = 0;
      for (double& value : values) mean += (value = rng.Normal()) / n;
      for (const double value : Mixed(rounds, values)) ASSERT_NEAR(value, mean, 1e-12) << n;
      for (const auto& round : rounds) {
        EXPECT_FALSE(round.empty());
        std::vector<uint32_t> degree(n, 0);
        std::vector<double> kept(n, 1);
        for (const WeightedEdge& edge : round) {
          ASSERT_LT(edge.a, edge.b);
          ASSERT_LT(edge.b, n);
          EXPECT_GT(edge.weight, 0);
          for (const uint32_t end : {edge.a, edge.b}) {
            EXPECT_LE(++degree[end], k) << n << " k " << k;
            EXPECT_GE(kept[end] -= edge.weight, -1e-12);
          }
        }
      }
    }
  }
}

// One round less, and it is not the mean: the test can fail.
TEST(BaseKGraphTest, NoRoundIsSpare) {
  for (const uint32_t n : {5U, 6U, 7U, 12U, 16U, 33U}) {
    auto rounds = BaseKRounds(n, 1).value();
    rounds.pop_back();
    std::vector<double> values(n, 0.0);
    values[0] = n;
    double worst = 0;
    for (const double value : Mixed(rounds, values)) worst = std::max(worst, std::abs(value - 1));
    EXPECT_GT(worst, 1e-3) << n;
  }
}

TEST(BaseKGraphTest, APowerOfTwoIsTheHypercubeAndTwoFitsAll) {
  for (const uint32_t n : {2U, 4U, 8U, 16U, 32U}) {
    EXPECT_EQ(MakeGraph(GraphKind::kBaseK, n).value(), MakeGraph(GraphKind::kHypercube, n).value());
    EXPECT_EQ(BaseKRounds(n, 1)->size(), std::bit_width(n) - 1U);
  }
  EXPECT_EQ(BaseKRounds(9, 8)->size(), 1U);  // everybody with everybody
}

TEST(BaseKGraphTest, NobodyAndNoNeighbourAreRefused) {
  EXPECT_FALSE(BaseKRounds(0, 1).ok());
  EXPECT_FALSE(BaseKRounds(3, 0).ok());
  EXPECT_TRUE(BaseKRounds(1, 1)->empty());
}

}  // namespace
}  // namespace crowdsurf::worker
