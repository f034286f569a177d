#include "bench/training/tuning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

namespace crowdsurf::bench {
namespace {

// A rate of 3 is the best on one seed and diverges on the other; 2 is good on both.
TEST(Tuning, TakesTheRateThatIsBestOnAllSeeds) {
  const auto path = (std::filesystem::path(testing::TempDir()) / "tuning.jsonl").string();
  std::filesystem::remove(path);
  Runs runs = Runs::Open(path, "tuning", 1).value();
  const auto search = RateSearch{
      .spec =
          [](double rate, uint64_t seed) {
            const double loss = rate == 3 ? (seed == 70 ? 0.5 : 100) : 3 - rate;
            return RunSpec{std::to_string(rate) + " " + std::to_string(seed), [loss]() -> Outcome {
                             return {{"loss", loss}};
                           }};
          },
      .score = [](const Outcome& outcome) { return outcome.at("loss"); },
      .first_seed = 70,
      .rates = {1, 2, 3}};
  const BestRate best = Tune(runs, search);
  EXPECT_EQ(best.rate, 2);
  EXPECT_EQ(best.score, 1);
  EXPECT_TRUE(best.inside);
  EXPECT_EQ(runs.made(), 6U);
  std::filesystem::remove(path);
}

struct TuningWalk : testing::Test {
  // The best of 1, 2, 4 .. 128 by a walk, where a rate has that loss.
  BestRate Walk(std::function<double(double rate)> loss) {
    std::filesystem::remove(path);
    Runs runs = Runs::Open(path, "tuning", 1).value();
    const auto spec = [&](double rate, uint64_t seed) {
      return RunSpec{std::to_string(rate) + " " + std::to_string(seed), [=]() -> Outcome {
                       return {{"loss", loss(rate)}};
                     }};
    };
    const BestRate best =
        Tune(runs, {.spec = spec,
                    .score = [](const Outcome& outcome) { return outcome.at("loss"); },
                    .first_seed = 70,
                    .rates = {1, 2, 4, 8, 16, 32, 64, 128},
                    .walk = true});
    made = runs.made();
    std::filesystem::remove(path);
    return best;
  }
  const std::string path =
      (std::filesystem::path(testing::TempDir()) / "tuning_walk.jsonl").string();
  uint64_t made = 0;
};

TEST_F(TuningWalk, FindsTheBottomOfAValleyFromEitherSide) {
  for (const double bottom : {2.0, 4.0, 8.0, 16.0, 32.0, 64.0}) {
    const BestRate best = Walk([&](double rate) { return std::abs(std::log2(rate / bottom)); });
    EXPECT_EQ(best.rate, bottom);
    EXPECT_EQ(best.score, 0);
    EXPECT_TRUE(best.inside);
  }
  // The middle, its neighbours and those on the way; each on two seeds.
  EXPECT_EQ(Walk([](double rate) { return std::abs(std::log2(rate / 8)); }).tried, 4U);
  EXPECT_EQ(made, 2U * 4);
}

TEST_F(TuningWalk, SaysWhenItEndsAtTheEdge) {
  const BestRate low = Walk([](double rate) { return rate; });
  EXPECT_EQ(low.rate, 1);
  EXPECT_FALSE(low.inside);
  const BestRate high = Walk([](double rate) { return -rate; });
  EXPECT_EQ(high.rate, 128);
  EXPECT_FALSE(high.inside);
}

TEST_F(TuningWalk, LeavesRatesThatDivergeDownwards) {
  for (const double lost : {std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_EQ(Walk([&](double rate) { return rate > 2 ? lost : 1 / rate; }).rate, 2);
  EXPECT_EQ(Walk([](double rate) { return rate < 8 ? std::nan("") : rate; }).rate, 8);
}

}  // namespace
}  // namespace crowdsurf::bench
