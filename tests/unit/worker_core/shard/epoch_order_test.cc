// The order of an epoch: a permutation, another one for each epoch and seed, and the same
// everywhere.
#include "worker/core/shard/epoch_order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace crowdsurf::worker {
namespace {

std::vector<uint64_t> OrderOf(uint64_t samples, uint64_t seed, uint64_t epoch) {
  const EpochOrder order(samples, seed, epoch);
  std::vector<uint64_t> indices;
  for (uint64_t at = 0; at < samples; ++at) indices.push_back(order.At(at));
  return indices;
}

TEST(EpochOrderTest, HasEachIndexOnce) {
  for (const uint64_t samples : {1, 2, 3, 4, 5, 16, 17, 64, 1000, 1797, 4096, 4097, 60'000}) {
    std::vector<bool> seen(samples);
    for (const uint64_t index : OrderOf(samples, 3, 1)) {
      ASSERT_LT(index, samples);
      ASSERT_FALSE(seen[index]) << index << " twice of " << samples;
      seen[index] = true;
    }
  }
}

// tests/python/shard_test.py has the same numbers.
TEST(EpochOrderTest, IsTheSameOnAllMachines) {
  EXPECT_EQ(OrderOf(10, 42, 0), (std::vector<uint64_t>{2, 3, 8, 0, 9, 6, 1, 4, 5, 7}));
  EXPECT_EQ(OrderOf(10, 42, 1), (std::vector<uint64_t>{8, 2, 1, 4, 3, 7, 0, 9, 6, 5}));
  EXPECT_EQ(EpochOrder(1ULL << 40, 7, 3).At(123'456'789), 896074019422u);
}

// Neighbours end far apart, and each position is as likely to hold a low index as a high one.
TEST(EpochOrderTest, Shuffles) {
  constexpr uint64_t kSamples = 10'000;
  constexpr int kBins = 10;
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    const std::vector<uint64_t> order = OrderOf(kSamples, 9, epoch);
    double chi_square = 0;
    std::vector<std::vector<int>> counts(kBins, std::vector<int>(kBins));
    int fixed = 0;
    int kept = 0;
    for (uint64_t at = 0; at < kSamples; ++at) {
      ++counts[at * kBins / kSamples][order[at] * kBins / kSamples];
      fixed += order[at] == at;
      kept += at > 0 && order[at] == order[at - 1] + 1;
    }
    constexpr double kExpected = static_cast<double>(kSamples) / (kBins * kBins);
    for (const auto& row : counts)
      for (const int count : row)
        chi_square += (count - kExpected) * (count - kExpected) / kExpected;
    EXPECT_LT(chi_square, 81 + 4 * std::sqrt(2.0 * 81)) << "epoch " << epoch;  // mean + 4 sigma
    EXPECT_LE(fixed, 8);  // Poisson with mean 1
    EXPECT_LE(kept, 8);
  }
}

TEST(EpochOrderTest, DiffersBetweenEpochsAndSeeds) {
  const std::vector<uint64_t> first = OrderOf(1000, 1, 0);
  const auto equal = [&](const std::vector<uint64_t>& other) {
    int same = 0;
    for (size_t at = 0; at < first.size(); ++at) same += first[at] == other[at];
    return same;
  };
  EXPECT_LE(equal(OrderOf(1000, 1, 1)), 8);
  EXPECT_LE(equal(OrderOf(1000, 2, 0)), 8);
}

}  // namespace
}  // namespace crowdsurf::worker
