// Descents with models of the caller's own: what it sees of them, and when they end.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "simulator/descent/descent.h"
#include "simulator/descent/quadratic.h"

namespace crowdsurf::simulator {
namespace {

constexpr uint64_t kSeed = 21;
constexpr int kMembers = 4;
constexpr double kCentre = 3;

// Worker i pulls to i in the first dimension, all to kCentre in the second.
DescentOptions OwnModels() {
  DescentOptions options;
  options.averaging =
      DescentAveraging(worker::StrategyKind::kMoshpit, worker::GraphKind::kComplete);
  options.members = kMembers;
  options.deaths = {};
  options.victims = {};
  options.joins = {};
  options.seed = kSeed;
  options.worker = [](int node) {
    Quadratic loss{{0.5, 0.5}, {static_cast<double>(node), kCentre}};
    return DescentWorker{std::make_unique<QuadraticModel>(std::move(loss), 0.5),
                         Milliseconds(10 + node)};
  };
  return options;
}

TEST(DescentModels, ALookShowsTheModelsOfTheLiving) {
  DescentOptions options = OwnModels();
  options.end = Seconds(3);
  options.deaths = {Seconds(2.5)};
  options.victims = {3};
  std::vector<size_t> living;
  double first = 0, second = 0;
  options.on_look = [&](const DescentLook& look) {
    living.push_back(look.living.size());
    if (look.at > Seconds(2.5)) return;
    first = look.living[0].model[0];
    second = look.living[0].model[1];
    EXPECT_GT(look.tensor_bytes, 0U);
  };
  const DescentResult result = RunDescent(options);
  EXPECT_TRUE(result.together);
  EXPECT_EQ(living, (std::vector<size_t>{4, 4, 3}));
  // The mean of 0, 1, 2, 3, where the worker's own last step may have pulled it a little.
  EXPECT_NEAR(first, 1.5, 0.5);
  EXPECT_NEAR(second, kCentre, 1e-3);
}

TEST(DescentModels, ARunEndsWhenAllHaveTakenTheirSteps) {
  DescentOptions options = OwnModels();
  options.end = Seconds(100);
  options.steps = 50;
  options.look_every = Milliseconds(100);
  Duration last;
  uint64_t steps = 0;
  options.on_look = [&](const DescentLook& look) {
    last = look.at;
    steps = look.steps;
    for (const DescentLook::Worker& worker : look.living) EXPECT_LE(worker.steps, 50U);
  };
  RunDescent(options);
  EXPECT_EQ(steps, 50U * kMembers);
  EXPECT_LT(last, Seconds(10));
}

}  // namespace
}  // namespace crowdsurf::simulator
