// The outer optimizer in a view's configuration: its bytes, its bounds, and views without one.
#include "worker/core/view/averaging_config.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

Bytes Encoded(const AveragingConfig& config) {
  ByteWriter out;
  Encode(config, out);
  return out.Take();
}

std::optional<AveragingConfig> Decoded(const Bytes& bytes) {
  ByteReader in(bytes);
  auto config = DecodeAveragingConfig(in);
  return in.Done() ? config : std::nullopt;
}

AveragingConfig With(const OuterOptimizer& outer, StrategyKind strategy = StrategyKind::kMoshpit) {
  AveragingConfig config;
  config.strategy = strategy;
  config.outer = outer;
  return config;
}

TEST(AveragingConfigTest, AnOuterOptimizerComesBackAsItWas) {
  for (const StrategyKind strategy : {StrategyKind::kMoshpit, StrategyKind::kAllReduce})
    for (const OuterKind kind : {OuterKind::kSgd, OuterKind::kNesterov}) {
      const AveragingConfig config = With({kind, 0.5, 0.25, 1'000}, strategy);
      EXPECT_EQ(Decoded(Encoded(config)), config);
    }
}

// Views of jobs that have none, and their hashes, are those of before there were any.
TEST(AveragingConfigTest, WithoutOneNothingIsSaidOfIt) {
  const Bytes none = Encoded(With({}));
  EXPECT_EQ(none[8], static_cast<uint8_t>(StrategyKind::kMoshpit)) << "after the generation";
  EXPECT_EQ(Encoded(With({OuterKind::kNone, 0.1, 0.2})), none);
  EXPECT_EQ(Encoded(With({OuterKind::kSgd, 0.1, 0.2})).size(), none.size() + 1 + 8 + 8 + 8);
}

TEST(AveragingConfigTest, OneThatIsOutOfBoundsOrHasNoBaseIsRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double rate : {0.0, -1.0, 101.0, nan, infinite})
    EXPECT_FALSE(Decoded(Encoded(With({OuterKind::kSgd, rate, 0.5})))) << rate;
  for (const double momentum : {-0.1, 1.1, nan, infinite})
    EXPECT_FALSE(Decoded(Encoded(With({OuterKind::kSgd, 0.5, momentum})))) << momentum;
  EXPECT_FALSE(Decoded(Encoded(With({OuterKind::kSgd, 0.5, 0.5, uint64_t{1} << 54}))));
  for (const StrategyKind strategy : {StrategyKind::kGossip, StrategyKind::kA2CiD2,
                                      StrategyKind::kRelaySum, StrategyKind::kPowerGossip})
    EXPECT_FALSE(Decoded(Encoded(With({OuterKind::kSgd, 0.5, 0.5}, strategy))));
  const auto kind = static_cast<OuterKind>(3);
  EXPECT_FALSE(Decoded(Encoded(With({kind, 0.5, 0.5}))));
}

TEST(AveragingConfigTest, AGlobalBatchComesBackAsItWasAndOnlyWhereItCanBe) {
  AveragingConfig config;
  const Bytes none = Encoded(config);
  config.overlap = Overlap::kBlocking;
  config.global_batch = 4096;
  EXPECT_EQ(Encoded(config).size(), none.size() + 8);
  EXPECT_EQ(Decoded(Encoded(config)), config);
  config.strategy = StrategyKind::kAllReduce;
  EXPECT_EQ(Decoded(Encoded(config)), config);
  AveragingConfig wrong = config;
  wrong.overlap = Overlap::kDelayed;
  EXPECT_FALSE(Decoded(Encoded(wrong)));
  wrong = config;
  wrong.strategy = StrategyKind::kIst;
  EXPECT_FALSE(Decoded(Encoded(wrong)));
  wrong = config;
  wrong.outer.kind = OuterKind::kSgd;
  EXPECT_FALSE(Decoded(Encoded(wrong)));
  wrong = config;
  wrong.global_batch = uint64_t{1} << 60;
  EXPECT_FALSE(Decoded(Encoded(wrong)));
  wrong = config;
  wrong.compression = WireFormat::kInt8;
  EXPECT_FALSE(Decoded(Encoded(wrong)));
}

TEST(AveragingConfigTest, Int8IsForStrategiesWithOneGroup) {
  for (int kind = 0; kind <= static_cast<int>(StrategyKind::kIst); ++kind) {
    AveragingConfig config;
    config.strategy = static_cast<StrategyKind>(kind);
    config.compression = WireFormat::kInt8;
    const bool one_group = kind <= static_cast<int>(StrategyKind::kAllReduce);
    EXPECT_EQ(Decoded(Encoded(config)).has_value(), one_group) << kind;
  }
}

// A mean of one round is no base that others measure from.
TEST(AveragingConfigTest, OneRoundHasNoOuterOptimizer) {
  AveragingConfig config = With({OuterKind::kNesterov, 0.7, 0.9});
  EXPECT_TRUE(Decoded(Encoded(config)));
  config.rounds = RoundsMode::kOne;
  EXPECT_FALSE(Decoded(Encoded(config)));
  config.strategy = StrategyKind::kAllReduce;  // it has one round anyway
  EXPECT_TRUE(Decoded(Encoded(config)));
}

TEST(AveragingConfigTest, NoByteThatIsFlippedOrMissingDoesHarm) {
  Rng rng(5);
  const Bytes sound = Encoded(With({OuterKind::kNesterov, 0.7, 0.9}));
  for (size_t length = 0; length < sound.size(); ++length)
    EXPECT_FALSE(Decoded(Bytes(sound.begin(), sound.begin() + static_cast<long>(length))));
  for (int i = 0; i < 2'000; ++i) {
    Bytes garbled = sound;
    garbled[rng.Uniform(garbled.size())] ^= static_cast<uint8_t>(1U << rng.Uniform(8));
    const auto config = Decoded(garbled);
    if (!config || config->outer.kind == OuterKind::kNone) continue;
    EXPECT_TRUE(TakesOuterOptimizer(config->strategy));
    EXPECT_GT(config->outer.learning_rate, 0);
    EXPECT_LE(config->outer.momentum, 1);
  }
}

}  // namespace
}  // namespace crowdsurf::worker
