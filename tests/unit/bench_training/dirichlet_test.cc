#include "bench/training/dirichlet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace crowdsurf::bench {
namespace {

constexpr uint64_t kSeed = 3;
constexpr size_t kClasses = trainer::kDigitClasses;

// For Dir(a, ..., a) over K classes the mean share is 1/K and the expected sum of squares is
// (a + 1) / (K a + 1).
TEST(Dirichlet, SharesHaveTheMomentsOfTheDistribution) {
  for (const double alpha : {1.0, 0.1, 0.01}) {
    constexpr uint32_t kWorkers = 20'000;
    const auto shares = DirichletShares(kWorkers, kClasses, alpha, Rng(kSeed));
    double first = 0, squares = 0;
    for (const std::vector<double>& row : shares) {
      double sum = 0, own = 0;
      for (const double share : row) {
        ASSERT_GE(share, 0);
        sum += share;
        own += share * share;
      }
      ASSERT_NEAR(sum, 1, 1e-12);
      first += row[0] / kWorkers;
      squares += own / kWorkers;
    }
    EXPECT_NEAR(first, 1.0 / kClasses, 0.01) << alpha;
    EXPECT_NEAR(squares, (alpha + 1) / (kClasses * alpha + 1), 0.01) << alpha;
  }
}

trainer::DigitSet AllDigits() {
  return trainer::MakeDigits({.train = 640, .held_out = 1, .seed = kSeed}).train;
}

TEST(Dirichlet, ShardsAreEqualAndNoExampleIsTwice) {
  const trainer::DigitSet all = AllDigits();
  for (const double alpha : {1.0, 0.01}) {
    const auto shards = DirichletShards(all, 16, alpha, Rng(kSeed));
    ASSERT_EQ(shards.size(), 16U);
    std::multiset<float> seen, whole;  // an example is told by its first pixel, which has noise
    for (Eigen::Index i = 0; i < all.features.cols(); ++i) whole.insert(all.features(0, i));
    for (const trainer::DigitSet& shard : shards) {
      EXPECT_EQ(shard.size(), 40U);
      for (Eigen::Index i = 0; i < shard.features.cols(); ++i) seen.insert(shard.features(0, i));
    }
    EXPECT_EQ(seen, whole);
  }
}

// What an example's label is stays with it.
TEST(Dirichlet, LabelsStayWithTheirExamples) {
  const trainer::DigitSet all = AllDigits();
  for (const trainer::DigitSet& shard : DirichletShards(all, 16, 0.1, Rng(kSeed))) {
    for (Eigen::Index i = 0; i < shard.features.cols(); ++i) {
      Eigen::Index at = 0;
      while (all.features.col(at) != shard.features.col(i)) ++at;
      EXPECT_EQ(shard.labels[static_cast<size_t>(i)], all.labels[static_cast<size_t>(at)]);
    }
  }
}

// A class has about 640 examples and a shard 800, so that four fifths are the most.
TEST(Dirichlet, SmallAlphaLeavesAWorkerAboutOneClass) {
  const auto largest = [](double alpha) {
    const trainer::Digits digits =
        trainer::MakeDigits({.train = 6400, .held_out = 1, .seed = kSeed});
    double sum = 0;
    const auto shards = DirichletShards(digits.train, 8, alpha, Rng(kSeed));
    for (const trainer::DigitSet& shard : shards) {
      std::vector<double> count(kClasses);
      for (const uint8_t label : shard.labels) count[label] += 1;
      sum += *std::max_element(count.begin(), count.end()) / static_cast<double>(shard.size());
    }
    return sum / 8;
  };
  EXPECT_GT(largest(0.01), 0.65);
  EXPECT_LT(largest(100), 0.2);
}

}  // namespace
}  // namespace crowdsurf::bench
