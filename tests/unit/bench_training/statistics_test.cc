#include "bench/training/statistics.h"

#include <gtest/gtest.h>

namespace crowdsurf::bench {
namespace {

// R: t.test(c(1, 2, 3, 4, 10))$conf.int is -0.3899 to 8.3899.
TEST(Estimate, IsStudentsInterval) {
  const Estimate estimate = EstimateOf({1, 2, 3, 4, 10});
  EXPECT_DOUBLE_EQ(estimate.mean, 4);
  EXPECT_NEAR(estimate.interval, 4.3899, 1e-3);
}

TEST(Estimate, OfOneValueHasNoInterval) {
  EXPECT_EQ(EstimateOf({3}).mean, 3);
  EXPECT_EQ(EstimateOf({3}).interval, 0);
}

TEST(BestRate, SaysWhetherTheGridGoesOnAroundIt) {
  const std::vector<double> rates = {1, 2, 4};
  EXPECT_EQ(BestOf(rates, {3, 1, 2}).rate, 2);
  EXPECT_TRUE(BestOf(rates, {3, 1, 2}).inside);
  EXPECT_FALSE(BestOf(rates, {1, 2, 3}).inside);
  EXPECT_FALSE(BestOf(rates, {3, 2, 1}).inside);
  EXPECT_EQ(BestOf(rates, {2, 1, 1}).rate, 2);
}

TEST(RateGrid, DoublesFromOneToTheNext) {
  const std::vector<double> rates = RateGrid();
  ASSERT_GE(rates.size(), 7U);
  for (size_t i = 1; i < rates.size(); ++i) EXPECT_DOUBLE_EQ(rates[i], 2 * rates[i - 1]);
}

}  // namespace
}  // namespace crowdsurf::bench
