// Int8 among real peers in a small world: when changes travel and when whole values, one base at
// all, members that missed an averaging, and an outer optimizer on top.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "tests/unit/worker_core/world/training_world.h"
#include "worker/core/averaging/averaging.h"

namespace crowdsurf::worker {
namespace {

using Values = PeerWorld::Values;

constexpr size_t kElements = 3500;  // three blocks and a half

AveragingConfig Int8(StrategyKind strategy = StrategyKind::kMoshpit) {
  AveragingConfig config = EveryTenSteps(8);
  config.strategy = strategy;
  config.compression = WireFormat::kInt8;
  return config;
}

// Trainers move each value by its own amount, up to .05.
void Stir(PeerWorld& world, int k) {
  for (size_t i = 0; i < world.size(); ++i) {
    Values& x = world.node(i).x;
    for (size_t e = 0; e < x.size(); ++e)
      x[e] += .05 * std::sin(static_cast<double>(7 * i + 3 * e) + k);
  }
}

const Values& Base(PeerWorld& world, size_t i) { return world.node(i).At(Region::kInboxA).values; }

void ExpectOneBase(PeerWorld& world) {
  size_t first = 0;
  while (!world.Alive(first)) ++first;
  for (size_t i = first + 1; i < world.size(); ++i) {
    if (!world.Alive(i)) continue;
    EXPECT_EQ(world.node(i).deliveries.back().averaging,
              world.node(first).deliveries.back().averaging);
    EXPECT_EQ(Base(world, i), Base(world, first)) << i;
  }
}

TEST(AveragingChangesTest, TheFirstAveragingOfAViewIsOfWholeValuesAndTheOthersAreOfChanges) {
  PeerWorld world(51, Int8());
  Fill(world, 4);
  // What was before is of smaller views.
  for (size_t i = 0; i < 4; ++i) world.node(i).opened.clear(), world.node(i).kernels.clear();
  world.RunFor(Seconds(1));
  ExpectOneBase(world);
  for (size_t i = 0; i < 4; ++i) {
    const PeerWorld::Node& node = world.node(i);
    bool changes = false;
    for (const OpenBuffers& open : node.opened) {
      // No base is lost in a quiet view.
      EXPECT_TRUE(!changes || open.wire == WireFormat::kInt8);
      changes = open.wire == WireFormat::kInt8;
      EXPECT_TRUE(changes || open.wire == WireFormat::kFloat16);
      EXPECT_EQ(open.from_base, changes);
    }
    EXPECT_TRUE(changes);
    EXPECT_GE(Count(node, MixKernel::kOuterChange), 5U);
    EXPECT_GE(Count(node, MixKernel::kKeepRest), 5U);
  }
}

TEST(AveragingChangesTest, AveragesAreTheMeansOfTheSnapshotsBesideARoundingOfChanges) {
  for (const StrategyKind strategy : {StrategyKind::kMoshpit, StrategyKind::kAllReduce}) {
    PeerWorld world(52, Int8(strategy));
    Fill(world, 4);
    world.RunFor(Seconds(1));
    for (int k = 0; k < 5; ++k) {
      Stir(world, k);
      RunToDelivery(world, 0);
      double error = 0, weight = 0;
      Values mean(Base(world, 0).size(), 0);
      for (size_t i = 0; i < 4; ++i) {
        const double own = world.node(i).weights.back();
        weight += own;
        for (size_t e = 0; e < mean.size(); ++e)
          mean[e] += own * world.node(i).At(Region::kOutbox).values[e];
      }
      for (size_t e = 0; e < mean.size(); ++e)
        error = std::max(error, std::abs(mean[e] / weight - Base(world, 0)[e]));
      // A trainer moves by .4 in an interval: half a step at each encoding, a rest and Float16
      // once.
      EXPECT_LT(error, 4 * .5 / 127);
      EXPECT_GT(error, 0);
      ExpectOneBase(world);
    }
  }
}

// All chunkings have the same blocks.
TEST(AveragingChangesTest, ChunksOfChangesAreWholeBlocks) {
  PeerWorld world(53, Int8(), kElements);
  Fill(world, 4);
  world.RunFor(Seconds(1));
  size_t seen = 0;
  for (size_t i = 0; i < 4; ++i) {
    for (const OpenBuffers& open : world.node(i).opened) {
      if (open.wire != WireFormat::kInt8) continue;
      ++seen;
      uint64_t at = 0;
      for (const ChunkSpan& chunk : open.chunks) {
        EXPECT_EQ(chunk.begin, at);
        EXPECT_EQ(chunk.begin % kInt8Block, 0U);
        at += chunk.count;
      }
      EXPECT_EQ(at, kElements);
      EXPECT_GT(open.chunks.size(), 2U);
    }
  }
  EXPECT_GT(seen, 20U);
  ExpectOneBase(world);
}

TEST(AveragingChangesTest, DeathsAndJoinsLeaveOneBase) {
  for (const StrategyKind strategy : {StrategyKind::kMoshpit, StrategyKind::kAllReduce}) {
    PeerWorld world(54, Int8(strategy), kElements);
    Fill(world, 7);
    world.RunFor(Seconds(1));
    for (size_t victim = 0; victim < 3; ++victim) {
      world.Kill(victim);
      world.RunFor(Milliseconds(700));
      world.Add();
      world.RunFor(Milliseconds(700));
    }
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.RunFor(Milliseconds(500));
    RunToDelivery(world, 3);
    ExpectOneBase(world);
    EXPECT_GT(Count(world.node(3), MixKernel::kOuterChange), 20U);
    ExpectAgreement(world);
  }
}

// Three of five give no snapshot once; as witnesses they still vote. True: they have all missed one
// averaging.
bool ThreeMissOne(PeerWorld& world, AveragingId& missed) {
  std::map<size_t, AveragingId> by;
  for (int ticks = 0; ticks < 20'000 && by.size() < 3; ++ticks) {
    world.RunFor(Microseconds(100));
    for (size_t i = 1; i <= 3; ++i) {
      if (!world.node(i).publish || by.contains(i)) continue;
      by[i] = *std::exchange(world.node(i).publish, std::nullopt);
      world.Local(i, PublishRefused{by[i]});
    }
  }
  missed = by[1];
  return by[2] == missed && by[3] == missed;
}

bool Has(const PeerWorld::Node& node, AveragingId averaging) {
  return std::ranges::any_of(node.deliveries,
                             [&](const auto& d) { return d.averaging == averaging; });
}

TEST(AveragingChangesTest, AnAverageThatNoQuorumOfWitnessesGaveToIsNone) {
  for (const WireFormat wire : {WireFormat::kInt8, WireFormat::kFloat16}) {
    AveragingConfig config = Int8();
    config.compression = wire;
    PeerWorld world(63, config);
    Fill(world, 5);
    world.RunFor(Seconds(1));
    AveragingId missed;
    ASSERT_TRUE(ThreeMissOne(world, missed));
    world.RunFor(Seconds(1));
    const bool changes = wire == WireFormat::kInt8;
    for (const size_t i : {0, 4}) EXPECT_EQ(Has(world.node(i), missed), !changes);
    // All go on from the base before, so nobody is behind.
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(Has(world.node(i), missed + 1));
      EXPECT_TRUE(world.node(i).moves.empty());
    }
    if (changes) ExpectOneBase(world);
    ExpectAgreement(world);
  }
}

TEST(AveragingChangesTest, AsManyWorkersAsAGroupHasGetSeats) {
  AveragingConfig config = Int8();
  config.group_size = 4;
  PeerWorld world(64, config);
  Fill(world, 4);
  world.RunFor(Seconds(1));
  ExpectOneBase(world);
}

// Node 1 gives no snapshot once.
bool MissOne(PeerWorld& world, AveragingId& missed) {
  for (int i = 0; i < 20'000 && !world.node(1).publish; ++i) world.RunFor(Microseconds(100));
  if (!world.node(1).publish) return false;
  missed = *std::exchange(world.node(1).publish, std::nullopt);
  world.RunFor(Milliseconds(2));
  world.Local(1, PublishRefused{missed});
  return true;
}

TEST(AveragingChangesTest, OneThatMissedAnAveragingFetchesTheBaseFirst) {
  PeerWorld world(55, Int8());
  Fill(world, 4);
  world.RunFor(Seconds(1));
  AveragingId missed;
  ASSERT_TRUE(MissOne(world, missed));
  world.RunFor(Seconds(1));
  ASSERT_EQ(world.node(1).moves.size(), 1U);
  EXPECT_FALSE(world.node(1).fetches.back().adopt);
  ExpectOneBase(world);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(world.node(i).opened.back().wire, WireFormat::kInt8);
  EXPECT_EQ(world.Summary(1).members.size(), 4U) << "it kept its seat";
  ExpectAgreement(world);
}

// It can take part in nothing until it is served, and the others go on.
TEST(AveragingChangesTest, OneThatIsNotServedStopsNobody) {
  PeerWorld world(56, Int8());
  Fill(world, 4);
  world.RunFor(Seconds(1));
  world.fetch_fails = true;
  AveragingId missed;
  ASSERT_TRUE(MissOne(world, missed));
  world.RunFor(Seconds(2));
  EXPECT_GT(world.node(0).deliveries.back().averaging, missed + 5);
  EXPECT_EQ(world.node(0).opened.back().wire, WireFormat::kInt8);
  world.fetch_fails = false;
  world.RunFor(Seconds(2));
  ExpectOneBase(world);
  ExpectAgreement(world);
}

// All but one have missed the averaging, and that one is gone: nobody has the base that they heard
// of.
TEST(AveragingChangesTest, ABaseThatIsGoneIsNotWaitedForForEver) {
  PeerWorld world(57, Int8());
  Fill(world, 5);
  world.RunFor(Seconds(1));
  const AveragingId last = world.node(0).deliveries.back().averaging;
  // Word of an averaging that nobody serves.
  for (size_t i = 0; i < 4; ++i)
    world.Tell(i, 4,
               message::DueFor{world.Summary(i).view->hash,
                               last + 1,
                               Committed{last + 2, Sha256(AsBytes("nothing")), 1e6},
                               {}});
  world.Kill(4);
  world.RunFor(Seconds(6));
  for (size_t i = 0; i < 4; ++i) EXPECT_GT(world.node(i).deliveries.back().averaging, last) << i;
  ExpectOneBase(world);
  EXPECT_EQ(world.node(0).opened.back().wire, WireFormat::kInt8);
}

TEST(AveragingChangesTest, AJoinerTakesPartInChanges) {
  PeerWorld world(58, Int8());
  Fill(world, 4);
  world.RunFor(Seconds(1));
  world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(1));
  EXPECT_GE(Count(world.node(4), MixKernel::kOuterChange), 3U);
  EXPECT_GE(Count(world.node(4), MixKernel::kKeepRest), 3U);
  ExpectOneBase(world);
}

// The rest of a trainer before is not the new one's.
TEST(AveragingChangesTest, TheFirstChangeOfATrainerHasNoRest) {
  PeerWorld world(59, Int8());
  Fill(world, 4);
  world.RunFor(Seconds(1));
  for (size_t i = 0; i < 4; ++i) {
    bool rest = false;
    for (const RunKernel& kernel : world.node(i).kernels) {
      if (kernel.kernel != MixKernel::kKeepRest) continue;
      EXPECT_EQ(kernel.scalars.at(0) != 0, rest);
      rest = true;
    }
    EXPECT_TRUE(rest);
    EXPECT_TRUE(world.node(i).opened.back().with_rest);
  }
}

TEST(AveragingChangesTest, AnOuterOptimizerStepsByTheMeanOfTheChanges) {
  AveragingConfig config = Int8();
  config.outer = {.kind = OuterKind::kNesterov, .learning_rate = 0.7, .momentum = 0.9};
  PeerWorld world(60, config);
  Fill(world, 4);
  world.RunFor(Seconds(1));
  for (int k = 0; k < 5; ++k) {
    const Values base = Base(world, 0);
    const Values velocity = world.node(0).At(Region::kVelocity).values;
    RunToDelivery(world, 0);
    const RunKernel& step = world.node(0).kernels.back();
    ASSERT_EQ(step.kernel, MixKernel::kOuterChange);
    const Values& change = world.node(0).At(step.regions[1]).values;
    for (size_t e = 0; e < base.size(); ++e) {
      const double pushed = 0.9 * velocity[e] - change[e];
      EXPECT_NEAR(world.node(0).At(Region::kVelocity).values[e], pushed, 1e-9);
      EXPECT_NEAR(Base(world, 0)[e], base[e] - 0.7 * (-change[e] + 0.9 * pushed), 1e-9);
    }
    ExpectOneBase(world);
    for (size_t i = 1; i < 4; ++i)
      EXPECT_EQ(world.node(i).At(Region::kVelocity).values,
                world.node(0).At(Region::kVelocity).values);
  }
}

TEST(AveragingChangesTest, ALiveJobSwitchesToChangesAndBack) {
  AveragingConfig config = EveryTenSteps(4);
  PeerWorld world(61, config);
  Fill(world, 4);
  world.RunFor(Seconds(1));
  const auto change = [&](WireFormat wire) {
    config.compression = wire;
    ++config.generation;
    for (size_t i = 0; i < 4; ++i) world.Local(i, ConfigChanged{config});
    world.RunFor(Seconds(2));
    EXPECT_EQ(world.node(0).opened.back().wire, wire);
  };
  change(WireFormat::kInt8);
  EXPECT_EQ(world.node(0).deliveries.back().region, Region::kInboxA);
  ExpectOneBase(world);
  change(WireFormat::kFloat16);
  change(WireFormat::kInt8);
  ExpectOneBase(world);
  ExpectAgreement(world);
}

// Its workers do not fit into one group.
TEST(AveragingChangesTest, AJobOfSeveralGroupsDoesNotSwitchToChanges) {
  AveragingConfig config = EveryTenSteps(2);
  PeerWorld world(62, config);
  Fill(world, 4);
  config.compression = WireFormat::kInt8;
  ++config.generation;
  for (size_t i = 0; i < 4; ++i) world.Local(i, ConfigChanged{config});
  world.RunFor(Seconds(2));
  for (size_t i = 0; i < 4; ++i) EXPECT_NE(world.node(i).opened.back().wire, WireFormat::kInt8);
  ExpectAgreement(world);
}

}  // namespace
}  // namespace crowdsurf::worker
