// IST among real peers in a small world: equal bases, averagings that are missed, deaths, joiners,
// switches from and to Moshpit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {
namespace {

using Values = PeerWorld::Values;

UnitSchema Model() {
  return UnitSchema::Of({{"first", {6, 5}, {{.axis = 0, .group = 0}}},
                         {"between", {5, 6}, {{.axis = 0, .group = 1}, {.axis = 1, .group = 0}}},
                         {"shared", {4}, {}}})
      .value();
}

AveragingConfig WithUnits() {
  AveragingConfig config = EveryTenSteps();
  config.strategy = StrategyKind::kIst;
  return config;
}

void Fill(PeerWorld& world, size_t members) {
  world.units = Model();
  for (size_t i = 0; i < members; ++i) {
    world.Add();
    world.node(i).drift = 0.01 * static_cast<double>(i + 1);
  }
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
}

size_t RoundsOfUnits(const PeerWorld::Node& node) {
  return static_cast<size_t>(
      std::count_if(node.opened.begin(), node.opened.end(),
                    [](const OpenBuffers& open) { return open.subnet != nullptr; }));
}

// All that live hold one base, and are at one averaging.
void ExpectOneBase(PeerWorld& world) {
  std::optional<size_t> first;
  for (size_t i = 0; i < world.size(); ++i) {
    if (!world.Alive(i)) continue;
    if (!first) first = i;
    ASSERT_FALSE(world.node(i).deliveries.empty()) << i;
    EXPECT_EQ(world.node(i).deliveries.back().averaging,
              world.node(*first).deliveries.back().averaging)
        << i;
    EXPECT_EQ(world.node(i).At(Region::kInboxA).values,
              world.node(*first).At(Region::kInboxA).values)
        << i;
  }
}

// No unit is two members', and all are somebody's.
void ExpectDealt(PeerWorld& world) {
  std::multiset<uint32_t> all;
  for (size_t i = 0; i < world.size(); ++i) {
    if (!world.Alive(i)) continue;
    ASSERT_TRUE(world.node(i).units.sets.contains(0)) << i;
    for (const uint32_t unit : world.node(i).units.sets.at(0)) all.insert(unit);
  }
  EXPECT_THAT(all, testing::ElementsAre(0, 1, 2, 3, 4, 5));
}

// Between two averagings: all have delivered the last one.
void RunToRest(PeerWorld& world) {
  const size_t before = world.node(0).deliveries.size();
  for (int ms = 0; ms < 2'000 && world.node(0).deliveries.size() == before; ++ms)
    world.RunFor(Milliseconds(1));
  ASSERT_GT(world.node(0).deliveries.size(), before);
  world.RunFor(Milliseconds(4));
}

TEST(UnitsTest, MembersTrainUnitsOfTheirOwnFromOneBase) {
  PeerWorld world(61, WithUnits());
  Fill(world, 4);
  world.RunFor(Seconds(2));
  RunToRest(world);
  ExpectOneBase(world);
  ExpectDealt(world);
  for (size_t i = 0; i < 4; ++i) EXPECT_GT(RoundsOfUnits(world.node(i)), 5U) << i;
  ExpectAgreement(world);
}

TEST(UnitsTest, DeathsAndJoinersMakeNewViewsWhichBeginWithWholeModels) {
  PeerWorld world(62, WithUnits());
  Fill(world, 5);
  world.RunFor(Seconds(1));
  for (size_t victim = 1; victim < 3; ++victim) {
    world.Kill(victim);
    world.RunFor(Milliseconds(700));
    world.Add();
    world.RunFor(Milliseconds(700));
  }
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(1));
  RunToRest(world);
  ExpectOneBase(world);
  ExpectDealt(world);
  for (size_t i = 0; i < world.size(); ++i)
    if (world.Alive(i)) {
      EXPECT_GT(RoundsOfUnits(world.node(i)), 3U) << i;
    }
  ExpectAgreement(world);
}

TEST(UnitsTest, OneThatMissedAnAveragingTakesTheBaseAndIsDealtUnitsAgain) {
  PeerWorld world(63, WithUnits());
  Fill(world, 4);
  world.RunFor(Seconds(1));
  for (int i = 0; i < 20'000 && !world.node(1).publish; ++i) world.RunFor(Microseconds(100));
  const AveragingId missed = *std::exchange(world.node(1).publish, std::nullopt);
  world.RunFor(Milliseconds(2));
  world.Local(1, PublishRefused{missed});
  while (world.node(1).moves.empty() && world.node(0).deliveries.back().averaging < missed + 5)
    world.RunFor(Microseconds(100));
  ASSERT_EQ(world.node(1).moves.size(), 1U);
  EXPECT_GE(world.node(1).moves[0].averaging, missed);
  world.RunFor(Seconds(1));
  RunToRest(world);
  ExpectOneBase(world);
  ExpectDealt(world);
  ExpectAgreement(world);
}

// It sits averagings out, one an interval, until a view without the dead begins anew.
TEST(UnitsTest, OneWhoseBaseDiedWithItsHoldersGoesOnAlone) {
  for (int ms = 0; ms < 40; ++ms) {
    PeerWorld world(68, WithUnits());
    Fill(world, 2);
    world.RunFor(Seconds(1));
    world.fetch_fails = true;
    for (int i = 0; i < 20'000 && !world.node(1).publish; ++i) world.RunFor(Microseconds(100));
    const AveragingId missed = *std::exchange(world.node(1).publish, std::nullopt);
    world.Local(1, PublishRefused{missed});
    world.RunFor(Milliseconds(3 * ms));
    world.Kill(0);
    world.RunFor(Seconds(3));
    EXPECT_EQ(world.Summary(1).view->members, 1U);
    EXPECT_GT(world.node(1).deliveries.back().averaging, missed) << ms;
  }
}

// A member names a base that nobody has. The others look for it, and then begin anew.
TEST(UnitsTest, ABaseThatNobodyServesIsGivenUp) {
  PeerWorld world(69, WithUnits());
  Fill(world, 4);
  world.RunFor(Seconds(1));
  RunToRest(world);
  const Deliver last = world.node(0).deliveries.back();
  const Committed unknown{.averaging = last.averaging + 1,
                          .root = RootOf({1, 2, 3}),
                          .job_samples = last.job_samples + 1,
                          .cells = {}};
  for (size_t at = 0; at < 4; ++at)
    world.Tell(at, (at + 1) % 4,
               message::DueFor{world.Summary(at).view->hash, last.averaging + 2, unknown, {}});
  world.RunFor(Seconds(3));
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(world.node(i).fetches.empty()) << i;
  RunToRest(world);
  EXPECT_GT(world.node(0).deliveries.back().averaging, last.averaging + 5);
  ExpectOneBase(world);
  ExpectDealt(world);
}

TEST(UnitsTest, ASnapshotOfOtherUnitsMovesNothing) {
  PeerWorld world(64, WithUnits());
  Fill(world, 3);
  world.RunFor(Seconds(1));
  RunToRest(world);
  for (size_t i = 0; i < 3; ++i) world.node(i).misses_units = true;
  const Values before = world.node(0).At(Region::kInboxA).values;
  RunToRest(world);
  // But for the rounding of a mean of equal values.
  for (size_t e = 0; e < before.size(); ++e)
    EXPECT_NEAR(world.node(0).At(Region::kInboxA).values[e], before[e], 1e-12) << e;
  for (size_t i = 0; i < 3; ++i) world.node(i).misses_units = false;
  RunToRest(world);
  EXPECT_GT(std::abs(world.node(0).At(Region::kInboxA).values.back() - before.back()), 1e-3);
  ExpectOneBase(world);
}

TEST(UnitsTest, ALiveJobSwitchesFromMoshpitAndBack) {
  AveragingConfig config = EveryTenSteps(2);
  PeerWorld world(65, config);
  Fill(world, 4);
  world.RunFor(Seconds(1));
  const auto change = [&](StrategyKind strategy) {
    config.strategy = strategy;
    ++config.generation;
    for (size_t i = 0; i < 4; ++i) world.Local(i, ConfigChanged{config});
    world.RunFor(Seconds(2));
    RunToRest(world);
  };
  change(StrategyKind::kIst);
  ExpectOneBase(world);
  ExpectDealt(world);
  change(StrategyKind::kMoshpit);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(world.node(i).units.sets.empty()) << "it trains the whole model again";
    EXPECT_EQ(world.node(i).opened.back().subnet, nullptr);
    EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << i;
  }
  ExpectAgreement(world);
}

TEST(UnitsTest, OneAloneHasAllUnits) {
  PeerWorld world(66, WithUnits());
  Fill(world, 1);
  world.RunFor(Seconds(1));
  RunToRest(world);
  EXPECT_EQ(world.node(0).units.sets.at(0).size(), 6U);
  EXPECT_EQ(world.node(0).At(Region::kInboxA).values, world.node(0).At(Region::kOutbox).values);
}

TEST(UnitsTest, TensorsWithoutUnitsAreAveragedWhole) {
  PeerWorld world(67, WithUnits());
  for (size_t i = 0; i < 3; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  for (size_t i = 0; i < 3; ++i) world.node(i).drift = 0.01 * static_cast<double>(i + 1);
  world.RunFor(Seconds(1));
  RunToRest(world);
  ExpectOneBase(world);
  ExpectAgreement(world);
}

}  // namespace
}  // namespace crowdsurf::worker
