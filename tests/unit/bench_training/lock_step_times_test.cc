#include "bench/training/lock_step_times.h"

#include <gtest/gtest.h>

#include <vector>

namespace crowdsurf::bench {
namespace {

constexpr uint64_t kSeed = 9;

TEST(AllReduceTimes, AreTheSlowestWorkersAndTheRings) {
  const Surroundings around{{1, 2, 1, 1}, 4, 0.5, 0};
  const auto times = AllReduceTimes(around, {}, 3, Rng(kSeed));
  EXPECT_EQ(times, (std::vector<double>{8.5, 17, 25.5}));  // 2 + .5 + 2 * 3/4 * 4
}

// A checkpoint after two steps; a death at 3.5 throws the third away.
TEST(AllReduceTimes, ADeathCostsWhatIsNotSavedAndTheRestart) {
  const Surroundings around{{1, 1}, 0, 0, 0};
  const auto times = AllReduceTimes(around, {{3.5}, 10, 2}, 5, Rng(kSeed));
  EXPECT_EQ(times, (std::vector<double>{1, 2, 14.5, 15.5, 16.5}));
}

TEST(AllReduceTimes, DeathsDuringARestartCostNothingMore) {
  const Surroundings around{{1, 1}, 0, 0, 0};
  const auto times = AllReduceTimes(around, {{0.5, 1, 5}, 10, 1}, 1, Rng(kSeed));
  EXPECT_EQ(times, (std::vector<double>{11.5}));
}

TEST(PushSumTimes, OfEqualWorkersAreTheMessages) {
  const Surroundings around{{1, 1, 1, 1}, 2, 0.25, 0};
  EXPECT_EQ(PushSumTimes(around, 1, 2, Rng(kSeed)), (std::vector<double>{3.25, 6.5}));
  EXPECT_EQ(PushSumTimes(around, 2, 1, Rng(kSeed)), (std::vector<double>{5.5}));
}

// A slow worker holds up who hears of it: rank 1 in the first step, rank 2 (offset 2) and rank 3
// (through rank 1) in the second.
TEST(PushSumTimes, ASlowWorkerHoldsUpThoseThatHearOfIt) {
  const Surroundings around{{5, 1, 1, 1}, 0, 0, 0};
  const auto times = PushSumTimes(around, 1, 2, Rng(kSeed));
  EXPECT_DOUBLE_EQ(times[0], (5 + 5 + 1 + 1) / 4.0);
  EXPECT_DOUBLE_EQ(times[1], (10 + 6 + 10 + 6) / 4.0);
}

}  // namespace
}  // namespace crowdsurf::bench
