// The synthetic digits: equal for equal seeds, and shards that are disjoint and together the set.
#include "worker/trainer/data/digits.h"

#include <map>
#include <set>

namespace crowdsurf::trainer {
namespace {

DigitOptions Small() {
  DigitOptions options;
  options.train = 500;
  options.held_out = 100;
  return options;
}

TEST(DigitsTest, EqualSeedsMakeEqualSetsAndOthersDoNot) {
  const Digits a = MakeDigits(Small()), b = MakeDigits(Small());
  EXPECT_EQ(a.train.features, b.train.features);
  EXPECT_EQ(a.held_out.labels, b.held_out.labels);
  DigitOptions other = Small();
  other.seed = 2;
  EXPECT_NE(MakeDigits(other).train.features, a.train.features);
}

TEST(DigitsTest, TrainingAndHeldOutExamplesAreDifferentDraws) {
  const Digits digits = MakeDigits(Small());
  for (Eigen::Index i = 0; i < digits.held_out.features.cols(); ++i) {
    for (Eigen::Index j = 0; j < digits.train.features.cols(); ++j) {
      ASSERT_NE(digits.held_out.features.col(i), digits.train.features.col(j));
    }
  }
}

TEST(DigitsTest, ShardsAreDisjointCoverEverythingAndHoldFewLabels) {
  const DigitSet all = MakeDigits(Small()).train;
  std::multiset<float> first_pixels, sharded_pixels;
  for (size_t i = 0; i < all.size(); ++i) first_pixels.insert(all.features(0, static_cast<int>(i)));
  size_t total = 0;
  for (size_t s = 0; s < 10; ++s) {
    const DigitSet shard = ShardByLabel(all, s, 10);
    total += shard.size();
    EXPECT_EQ(shard.size(), 50u);
    const std::set<uint8_t> labels(shard.labels.begin(), shard.labels.end());
    EXPECT_LE(labels.size(), 3u) << "shard " << s;
    for (size_t i = 0; i < shard.size(); ++i) {
      sharded_pixels.insert(shard.features(0, static_cast<int>(i)));
    }
  }
  EXPECT_EQ(total, all.size());
  EXPECT_EQ(first_pixels, sharded_pixels);
}

TEST(DigitsTest, AShardKeepsExamplesWithTheirLabels) {
  const DigitSet all = MakeDigits(Small()).train;
  std::map<float, uint8_t> label_of;
  for (size_t i = 0; i < all.size(); ++i) {
    label_of[all.features(0, static_cast<int>(i))] = all.labels[i];
  }
  const DigitSet shard = ShardByLabel(all, 3, 7);
  for (size_t i = 0; i < shard.size(); ++i) {
    EXPECT_EQ(label_of.at(shard.features(0, static_cast<int>(i))), shard.labels[i]);
  }
}

}  // namespace
}  // namespace crowdsurf::trainer
