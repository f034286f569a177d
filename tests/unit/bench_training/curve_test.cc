#include "bench/training/curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace crowdsurf::bench {
namespace {

// A look a second, ten bytes each.
Outcome CurveOf(const std::vector<double>& losses) {
  Curve curve;
  for (size_t i = 0; i < losses.size(); ++i) {
    Score score;
    score.mean = losses[i];
    score.spread = static_cast<double>(i) / 2;
    curve.Add({static_cast<double>(i), 10.0 * static_cast<double>(i), score});
  }
  return curve.outcome();
}

TEST(CurveTest, ReadsLossesAsTheMeanOfThree) {
  const Outcome curve = CurveOf({9, 6, 3, 3, 3, 0});
  EXPECT_EQ(LooksOf(curve), 6);
  EXPECT_DOUBLE_EQ(LastLoss(curve), 2);
  EXPECT_DOUBLE_EQ(LastSpread(curve), 2.5);
  EXPECT_DOUBLE_EQ(SecondsTo(curve, 6), 2);
  EXPECT_DOUBLE_EQ(SecondsTo(curve, 4), 3);  // (6 + 3 + 3) / 3
  EXPECT_DOUBLE_EQ(BytesTo(curve, 3), 40);
  EXPECT_TRUE(std::isinf(SecondsTo(curve, 1)));
}

TEST(CurveTest, ReadsAccuraciesAsTheMeanOfThreeToo) {
  Curve curve;
  for (const double accuracy : {10.0, 90.0, 50.0, 70.0, 90.0}) {
    Score score;
    score.accuracy = accuracy;
    curve.Add({accuracy / 10, 0, score});
  }
  EXPECT_DOUBLE_EQ(LastAccuracy(curve.outcome()), 70);
  EXPECT_DOUBLE_EQ(SecondsToAccuracy(curve.outcome(), 50), 5);
  EXPECT_DOUBLE_EQ(SecondsToAccuracy(curve.outcome(), 70), 7);  // (90 + 50 + 70) / 3
  EXPECT_TRUE(std::isinf(SecondsToAccuracy(curve.outcome(), 71)));
  EXPECT_EQ(LastAccuracy({}), 0);
}

TEST(CurveTest, OfTooFewLooksReachesNothing) {
  EXPECT_TRUE(std::isinf(LastLoss(CurveOf({1, 1}))));
  EXPECT_TRUE(std::isinf(BytesTo(CurveOf({1, 1}), 5)));
  EXPECT_EQ(LooksOf({}), 0);
}

}  // namespace
}  // namespace crowdsurf::bench
