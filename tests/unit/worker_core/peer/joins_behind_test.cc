// Joiners whose transfer takes longer than the members need for several averages: they get their
// seats, their old values enter no mean, and where all measure from one base they come to it.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/training_world.h"

namespace crowdsurf::worker {
namespace {

// An average after each step of 10 ms. A transfer takes 160 ms and more, in 32 chunks: four
// windows.
AveragingConfig EachStep() {
  AveragingConfig config = EveryTenSteps();
  config.interval = 1;
  return config;
}

// A transfer of .64 s: members of a round wait for nobody's base that long.
constexpr Duration kSlowChunk = Milliseconds(20);

// One that averages alone, and `joiners` that come to it.
void JoinBehind(PeerWorld& world, size_t joiners, Duration chunk = Milliseconds(5)) {
  world.FetchByChunks(2, chunk);
  world.Add();
  world.node(0).drift = 1;
  ASSERT_TRUE(world.UntilTogether(Seconds(2)));
  world.RunFor(Milliseconds(300));
  ASSERT_GT(world.node(0).deliveries.size(), 5U);
  for (size_t i = 0; i < joiners; ++i) world.node(world.Add()).drift = 1;
  const auto took = world.UntilTogether(Seconds(6));
  ASSERT_TRUE(took) << world.Describe();
}

TEST(JoinsBehindTest, ThreeAndSevenGetTheirSeatsThoughEachTransferTakesManyIntervals) {
  for (const size_t joiners : {3U, 7U}) {
    PeerWorld world(71, EachStep());
    JoinBehind(world, joiners);
    world.RunFor(Seconds(1));
    ExpectAgreement(world);
    double trained = 0;
    for (size_t i = 0; i < world.size(); ++i) {
      EXPECT_GE(world.node(i).deliveries.size(), 5U) << i;
      trained += world.node(i).samples_per_step * static_cast<double>(world.node(i).steps);
    }
    EXPECT_LE(world.node(0).deliveries.back().job_samples, trained);
  }
}

// The trainers of both add 1 to each value at each step. An older average pulls the mean back.
TEST(JoinsBehindTest, OldValuesEnterNoMeanAndTheirSamplesNoCount) {
  PeerWorld world(72, EachStep());
  JoinBehind(world, 1);
  PeerWorld::Node &first = world.node(0), &joiner = world.node(1);
  while (joiner.deliveries.empty()) world.RunFor(Microseconds(100));
  ASSERT_FALSE(joiner.weights.empty());
  EXPECT_EQ(joiner.weights.front(), 0);
  // Its first mean is of the other's values alone, and its count of their samples.
  const Deliver& delivered = joiner.deliveries.front();
  EXPECT_EQ(delivered.samples, first.weights.back());
  EXPECT_EQ(joiner.At(delivered.region).values, first.At(Region::kOutbox).values);
  world.RunFor(Seconds(1));
  EXPECT_GT(joiner.weights.back(), 0) << "from its second averaging on it counts";
  ExpectAgreement(world);
}

// Of changes and of units all measure from an average of their view: those who come behind come
// with a view, whose first average is one of whole values.
TEST(JoinsBehindTest, WhereAllMeasureFromOneBaseTheyGetItWithAnAverageOfAll) {
  for (const bool units : {false, true}) {
    SCOPED_TRACE(units ? "IST" : "Int8");
    AveragingConfig config = EachStep();
    if (units) {
      config.strategy = StrategyKind::kIst;
    } else {
      config.group_size = 8;
      config.compression = WireFormat::kInt8;
    }
    PeerWorld world(73, config);
    if (units)
      world.units =
          UnitSchema::Of({{"first", {6, 5}, {{.axis = 0, .group = 0}}},
                          {"between", {5, 6}, {{.axis = 0, .group = 1}, {.axis = 1, .group = 0}}},
                          {"shared", {4}, {}}})
              .value();
    JoinBehind(world, 3, kSlowChunk);
    world.RunFor(Seconds(2));
    ExpectAgreement(world);
    for (size_t i = 0; i < world.size(); ++i) {
      ASSERT_GE(world.node(i).deliveries.size(), 20U) << i;
      EXPECT_LE(world.node(i).deliveries.back().averaging + 1,
                world.node(0).deliveries.back().averaging + 2)
          << i;
      EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << i;
    }
  }
}

// One that has missed an averaging, and cannot fetch the base of the next one in time, gives its
// cell back: it would sit averagings out for ever.
TEST(JoinsBehindTest, AMemberThatNeverCatchesUpComesBackWithAView) {
  AveragingConfig config = EachStep();
  config.group_size = 8;
  config.compression = WireFormat::kInt8;
  PeerWorld world(75, config);
  world.FetchByChunks(2, kSlowChunk);
  for (int i = 0; i < 4; ++i) world.node(world.Add()).drift = 1;
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(1));
  for (int i = 0; i < 20'000 && !world.node(1).publish; ++i) world.RunFor(Microseconds(100));
  ASSERT_TRUE(world.node(1).publish);
  world.Local(1, PublishRefused{*std::exchange(world.node(1).publish, std::nullopt)});
  world.RunFor(Seconds(8));
  ASSERT_TRUE(world.Together()) << world.Describe();
  const AveragingId last = world.node(1).deliveries.back().averaging;
  EXPECT_GE(last + 2, world.node(0).deliveries.back().averaging);
  ExpectAgreement(world);
}

// With an outer optimizer they begin a base anew with all others, when they cannot have the one
// that those step from.
TEST(JoinsBehindTest, AnOuterOptimizerBeginsItsBaseAnew) {
  AveragingConfig config = EachStep();
  config.outer = {.kind = OuterKind::kNesterov, .learning_rate = 0.7, .momentum = 0.9};
  PeerWorld world(74, config);
  JoinBehind(world, 3);
  world.RunFor(Seconds(10));
  for (size_t i = 0; i < world.size(); ++i) {
    ASSERT_FALSE(world.node(i).deliveries.empty()) << i;
    EXPECT_GE(world.node(i).deliveries.back().averaging + 1,
              world.node(0).deliveries.back().averaging)
        << i;
  }
  const size_t before = world.node(3).deliveries.size();
  world.RunFor(Seconds(1));
  EXPECT_GE(world.node(3).deliveries.size(), before + 20);
  ExpectAgreement(world);
}

}  // namespace
}  // namespace crowdsurf::worker
