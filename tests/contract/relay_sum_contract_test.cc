// RelaySum where messages are late: they hold nobody up, and all take one learning rate that makes
// up for their age.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/contract/world/mixing_world.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kStep = Milliseconds(10);

AveragingConfig OnTree(GraphKind tree) {
  AveragingConfig config;
  config.strategy = StrategyKind::kRelaySum;
  config.mixing.graph = tree;
  config.interval = 1;
  return config;
}

// Closed form: where each hop is one step late.
double MaxScaleOf(GraphKind tree, uint32_t members) {
  return 1 + MeanRelayDelay(TreesOf(tree, members).value()[0]) + (members - 1.0) / members;
}

// Their steps end one after the other within the length of a step.
void AddStaggered(MixingWorld& world, int members, double target) {
  for (int i = 0; i < members; ++i) {
    world.Add(target);
    world.RunFor(kStep * (0.13 + 0.07 * (i % 5)));
  }
}

// Messages that take two and a half steps to leave: each worker has an average a step, and the end
// is the optimum of curvatures that differ.
TEST(RelaySumContract, AMessageInFlightDelaysNoAverage) {
  constexpr int kMembers = 16;
  constexpr Duration kTime = Seconds(60);
  MixingWorld world({.config = OnTree(GraphKind::kChain),
                     .elements = 20,
                     .chunk_elements = 4,
                     .chunk_time = kStep * 0.5,
                     .step = kStep,
                     .learning_rate = 0.05,
                     .seed = 5});
  double weighted = 0, total = 0;
  for (int i = 0; i < kMembers; ++i) {
    const double target = (i * 7 % kMembers) / 4.0, curvature = 0.25 + 0.05 * i;
    world.Add(target, curvature);
    world.RunFor(kStep * 0.37);
    weighted += curvature * target;
    total += curvature;
  }
  world.MakeView();
  world.RunFor(kTime);
  const double steps = kTime.seconds() / kStep.seconds();
  double squares = 0;
  for (int i = 0; i < kMembers; ++i) {
    EXPECT_GE(static_cast<double>(world.mixing(i).delivered()), steps - 2) << i;
    for (const double parameter : world.parameters(i)) {
      const double off = parameter - weighted / total;
      squares += off * off / kMembers;
    }
  }
  EXPECT_LT(squares, 1e-12);
}

// The middle of the largest star: the copies of all its neighbours go into one average.
TEST(RelaySumContract, TheMiddleOfTheLargestStarAverages) {
  const AveragingConfig config = OnTree(GraphKind::kStar);
  MixingWorld world({.config = config, .elements = 2, .chunk_elements = 2});
  const auto members = static_cast<int>(MaxMembersOf(config));
  for (int i = 0; i < members; ++i) world.Add(i);
  world.MakeView();
  for (const int i : world.Living()) world.parameters(i).assign(2, i);
  world.RunFor(kStep * 20);
  EXPECT_GT(world.mixing(0).delivered(), 5u);
  EXPECT_NEAR(world.parameters(0)[0], (members - 1) / 2.0, 5);
}

// Targets so far away that gradients are constant: the rate at which all of them move is the rate
// that the user has asked for, however late the messages are.
TEST(RelaySumContract, TheRateReachedIsTheRateAsked) {
  struct Row {
    const char* name;
    GraphKind tree;
    Duration delay;
    Duration chunk_time;
    int members;
  };
  const Row rows[] = {{"at once", GraphKind::kChain, Microseconds(1), {}, 16},
                      {"late", GraphKind::kChain, Milliseconds(6), {}, 16},
                      {"slow to leave", GraphKind::kChain, Microseconds(1), kStep * 0.1, 16},
                      {"trees", GraphKind::kDoubleBinaryTree, Milliseconds(4), kStep * 0.02, 13},
                      {"star", GraphKind::kStar, Milliseconds(3), {}, 8}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    constexpr double kFar = 1e9, kRate = 1e-12;
    MixingWorld world({.config = OnTree(row.tree),
                       .elements = 12,
                       .chunk_elements = 3,
                       .delay = row.delay,
                       .chunk_time = row.chunk_time,
                       .step = kStep,
                       .learning_rate = kRate,
                       .seed = 2});
    AddStaggered(world, row.members, kFar);
    for (const int i : world.Living()) world.parameters(i).assign(12, 0);
    world.MakeView();
    world.RunFor(Seconds(10));
    const double before = world.Mean();
    world.RunFor(Seconds(20));
    const double steps = Seconds(20).seconds() / kStep.seconds();
    EXPECT_NEAR((world.Mean() - before) / steps / (kFar * kRate), 1, 0.1);
    for (const int i : world.Living()) EXPECT_EQ(world.lr_scale(i), world.lr_scale(0)) << i;
    EXPECT_GT(world.lr_scale(0), 1);
    EXPECT_LT(world.lr_scale(0), MaxScaleOf(row.tree, static_cast<uint32_t>(row.members)));
  }
}

// Messages later than a step a hop: the factor stops at the closed form.
TEST(RelaySumContract, TheFactorHasABound) {
  MixingWorld world({.config = OnTree(GraphKind::kChain),
                     .elements = 8,
                     .chunk_elements = 4,
                     .delay = kStep * 6,
                     .step = kStep});
  AddStaggered(world, 8, 1);
  world.MakeView();
  world.RunFor(Seconds(10));
  for (const int i : world.Living())
    EXPECT_DOUBLE_EQ(world.lr_scale(i), MaxScaleOf(GraphKind::kChain, 8)) << i;
}

// Whoever does not hear what came of a count takes the others' factor at the next one.
TEST(RelaySumContract, AWorkerThatMissesACountTakesTheFactorOfTheOthers) {
  MixingWorld world({.config = OnTree(GraphKind::kChain),
                     .elements = 8,
                     .chunk_elements = 4,
                     .delay = Microseconds(1),
                     .step = kStep});
  AddStaggered(world, 8, 1);
  world.MakeView();
  world.MissNextCount(3);
  world.RunFor(Milliseconds(1700));
  EXPECT_EQ(world.lr_scale(3), 1);
  EXPECT_GT(world.lr_scale(2), 1.5);
  world.RunFor(Seconds(1));
  EXPECT_EQ(world.lr_scale(3), world.lr_scale(2));
}

TEST(RelaySumContract, WithoutAFactorNothingIsMeasured) {
  AveragingConfig config = OnTree(GraphKind::kChain);
  config.mixing.lr_scale = false;
  MixingWorld world({.config = config, .elements = 8, .chunk_elements = 4});
  for (int i = 0; i < 4; ++i) world.Add(i);
  world.MakeView();
  world.RunFor(Seconds(5));
  for (const int i : world.Living()) {
    EXPECT_TRUE(world.mixing(i).age().none());
    EXPECT_EQ(world.lr_scale(i), 1);
  }
}

}  // namespace
}  // namespace crowdsurf::worker
