#include "worker/core/strategy/tensor_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

AveragingConfig PowerOf(uint16_t rank) {
  AveragingConfig config;
  config.strategy = StrategyKind::kPowerGossip;
  config.mixing.rank = rank;
  return config;
}

// A large matrix, a narrow one, and a bias.
TensorViews Model() { return {{0, {64, 128}}, {8192, {100, 4}}, {8592, {128, 1}}}; }

TEST(TensorNeedsTest, ARankAboveAMatrixsOwnIsSaidWithItsField) {
  EXPECT_EQ(UnmetByTensors(PowerOf(1), Model()), "");
  EXPECT_EQ(UnmetByTensors(PowerOf(4), Model()), "");
  EXPECT_EQ(UnmetByTensors(PowerOf(5), Model()),
            "spec.averaging.powerGossip.rank: 5 is above the rank of 1 of 2 matrices, as low as 4; "
            "these travel whole");
}

TEST(TensorNeedsTest, AModelWithoutLargeMatricesIsSaid) {
  for (const TensorViews& small : {TensorViews{{0, {128, 1}}}, TensorViews{{0, {2, 3}}}}) {
    const std::string unmet = UnmetByTensors(PowerOf(1), small);
    EXPECT_THAT(unmet, StartsWith("spec.averaging.strategy: PowerGossip needs large matrices"));
    EXPECT_THAT(unmet, HasSubstr("whole vectors travel"));
  }
  EXPECT_EQ(UnmetByTensors(PowerOf(1), {}), "") << "no trainer has registered";
}

TEST(TensorNeedsTest, OtherStrategiesNeedNoShapes) {
  AveragingConfig gossip = PowerOf(64);
  gossip.strategy = StrategyKind::kGossip;
  EXPECT_EQ(UnmetByTensors(gossip, Model()), "");
}

}  // namespace
}  // namespace crowdsurf::worker
