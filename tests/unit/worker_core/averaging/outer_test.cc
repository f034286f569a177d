// An outer optimizer among real peers in a small world: its steps recomputed, averagings that are
// missed, joiners, switches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker_core/world/training_world.h"
#include "worker/core/averaging/averaging.h"

namespace crowdsurf::worker {
namespace {

using Values = PeerWorld::Values;

AveragingConfig Outer(OuterKind kind, uint16_t group = 4) {
  AveragingConfig config = EveryTenSteps(group);
  config.outer = {.kind = kind, .learning_rate = 0.7, .momentum = 0.9};
  return config;
}

void ExpectNear(const Values& got, const Values& wanted, const char* what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t e = 0; e < got.size(); ++e)
    ASSERT_NEAR(got[e], wanted[e], 1e-9 * (1 + std::abs(wanted[e]))) << what << " " << e;
}

// DiLoCo from the snapshots of all members, beside the job: each step of the job is made again.
void ExpectItsSteps(OuterKind kind, uint16_t group, size_t members) {
  PeerWorld world(41, Outer(kind, group));
  Fill(world, members);
  RunToDelivery(world, 0);
  RunToDelivery(world, 0);
  for (int step = 0; step < 10; ++step) {
    const Values base = world.node(0).At(Region::kInboxA).values;
    const Values velocity = world.node(0).At(Region::kVelocity).values;
    RunToDelivery(world, 0);
    double weight = 0;
    Values mean(base.size(), 0), next(base.size()), pushed(base.size());
    for (size_t i = 0; i < members; ++i) {
      // The first weight of an averaging is the own; later rounds carry the group's.
      const auto& weights = world.node(i).weights;
      const size_t rounds = world.Summary(0).view->radices.size();
      ASSERT_GE(weights.size(), rounds);
      const double own = weights[weights.size() - rounds];
      weight += own;
      for (size_t e = 0; e < mean.size(); ++e)
        mean[e] += own * world.node(i).At(Region::kOutbox).values[e];
    }
    for (size_t e = 0; e < mean.size(); ++e) {
      const double change = base[e] - mean[e] / weight;
      pushed[e] = 0.9 * velocity[e] + change;
      next[e] =
          base[e] - 0.7 * (kind == OuterKind::kNesterov ? change + 0.9 * pushed[e] : pushed[e]);
    }
    for (size_t i = 0; i < members; ++i) {
      ExpectNear(world.node(i).At(Region::kInboxA).values, next, "base");
      ExpectNear(world.node(i).At(Region::kVelocity).values, pushed, "velocity");
      EXPECT_EQ(world.node(i).At(Region::kInboxA).values, world.node(0).At(Region::kInboxA).values);
    }
  }
  for (size_t i = 0; i < members; ++i) {
    EXPECT_EQ(Count(world.node(i), MixKernel::kOuterBegin), 1U) << "the first average is a mean";
    EXPECT_GE(Count(world.node(i), MixKernel::kOuterStep), 11U);
  }
}

TEST(OuterTest, EveryStepIsTheOneThatItsSnapshotsGive) {
  ExpectItsSteps(OuterKind::kSgd, 4, 4);
  ExpectItsSteps(OuterKind::kNesterov, 4, 4);
  ExpectItsSteps(OuterKind::kNesterov, 2, 4);  // two axes
  ExpectItsSteps(OuterKind::kNesterov, 2, 8);  // three
}

// With holes of the grid and a member that dies now and then.
TEST(OuterTest, DeathsAndJoinsLeaveOneBase) {
  PeerWorld world(42, Outer(OuterKind::kNesterov, 3));
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
  const PeerWorld::Node& first = world.node(3);
  EXPECT_GT(Count(first, MixKernel::kOuterStep), 4 * Count(first, MixKernel::kOuterBegin));
  for (size_t i = 4; i < world.size(); ++i) {
    PeerWorld::Node& other = world.node(i);
    EXPECT_EQ(other.deliveries.back().averaging, first.deliveries.back().averaging) << i;
    EXPECT_EQ(other.At(Region::kInboxA).values, world.node(3).At(Region::kInboxA).values) << i;
    EXPECT_EQ(other.At(Region::kVelocity).values, world.node(3).At(Region::kVelocity).values) << i;
  }
}

// The base that a member has when it comes is the job's, with its velocity: nothing begins anew.
TEST(OuterTest, AJoinerBringsTheBaseAndTheVelocityThatTheOthersHave) {
  PeerWorld world(43, Outer(OuterKind::kNesterov));
  Fill(world, 4);
  world.RunFor(Seconds(1));
  world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(1));
  ASSERT_FALSE(world.node(4).fetches.empty());
  EXPECT_TRUE(world.node(4).fetches.front().adopt);
  EXPECT_EQ(Count(world.node(4), MixKernel::kOuterBegin), 0U);
  EXPECT_GE(Count(world.node(4), MixKernel::kOuterStep), 3U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Count(world.node(i), MixKernel::kOuterBegin), 1U);
  EXPECT_EQ(world.node(4).At(Region::kVelocity).values, world.node(0).At(Region::kVelocity).values);
}

// Node 1 gives no snapshot once. True: it was the one of averaging `missed`.
bool MissOne(PeerWorld& world, AveragingId& missed) {
  for (int i = 0; i < 20'000 && !world.node(1).publish; ++i) world.RunFor(Microseconds(100));
  if (!world.node(1).publish) return false;
  missed = *std::exchange(world.node(1).publish, std::nullopt);
  world.RunFor(Milliseconds(2));
  world.Local(1, PublishRefused{missed});
  return true;
}

TEST(OuterTest, OneThatMissedAnAveragingFetchesTheBaseAndKeepsItsOwnChange) {
  PeerWorld world(44, Outer(OuterKind::kNesterov));
  Fill(world, 4);
  world.RunFor(Seconds(1));
  AveragingId missed;
  ASSERT_TRUE(MissOne(world, missed));
  const Values old_base = world.node(1).At(Region::kInboxA).values;
  const size_t before = world.node(1).weights.size();
  while (world.node(1).moves.empty() && world.node(0).deliveries.back().averaging < missed + 3)
    world.RunFor(Microseconds(100));
  ASSERT_EQ(world.node(1).moves.size(), 1U);
  EXPECT_EQ(world.node(1).moves[0].averaging, missed);
  const FetchState& fetch = world.node(1).fetches.back();
  EXPECT_FALSE(fetch.adopt);
  EXPECT_EQ(fetch.averaging, missed);
  EXPECT_GE(fetch.donors.size(), 1U) << "of whom it heard first";
  // The snapshot, moved by as much as the base moved.
  const Values& base = world.node(1).At(Region::kInboxA).values;
  EXPECT_NE(base, old_base);
  const Values& outbox = world.node(1).At(Region::kOutbox).values;
  Values moved(base.size());
  for (size_t e = 0; e < base.size(); ++e) moved[e] = outbox[e] + (base[e] - old_base[e]);
  ExpectNear(world.node(1).At(world.node(1).moves[0].region).values, moved, "moved");
  world.RunFor(Seconds(1));
  // It is in the averagings again, with the samples of both intervals; the momentum went on.
  ASSERT_GT(world.node(1).weights.size(), before);
  EXPECT_GE(world.node(1).weights[before], 19 * world.node(1).samples_per_step);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(Count(world.node(i), MixKernel::kOuterBegin), 1U) << i;
    EXPECT_EQ(world.node(i).At(Region::kInboxA).values, world.node(0).At(Region::kInboxA).values);
  }
  EXPECT_EQ(world.Summary(1).members.size(), 4U) << "it kept its seat";
  ExpectAgreement(world);
}

// Nobody serves what was missed: the job goes on, and a base begins anew.
TEST(OuterTest, ABaseThatNobodyServesIsNotWaitedFor) {
  PeerWorld world(45, Outer(OuterKind::kNesterov));
  Fill(world, 4);
  world.RunFor(Seconds(1));
  world.fetch_fails = true;
  AveragingId missed;
  ASSERT_TRUE(MissOne(world, missed));
  world.RunFor(Seconds(2));
  EXPECT_TRUE(world.node(1).moves.empty());
  EXPECT_GT(world.node(1).deliveries.back().averaging, missed + 3);
  EXPECT_EQ(world.node(1).deliveries.back().averaging, world.node(0).deliveries.back().averaging);
  EXPECT_GE(Count(world.node(0), MixKernel::kOuterBegin), 2U);
  EXPECT_EQ(world.node(1).At(Region::kInboxA).values, world.node(0).At(Region::kInboxA).values);
}

// A member that says of itself that it holds a later average, and serves nothing, stops nobody.
TEST(OuterTest, AHolderThatLiesStopsNobody) {
  PeerWorld world(46, Outer(OuterKind::kSgd));
  Fill(world, 4);
  world.RunFor(Seconds(1));
  const AveragingId last = world.node(0).deliveries.back().averaging;
  for (size_t i = 0; i < 3; ++i)
    world.Tell(i, 3,
               message::DueFor{world.Summary(i).view->hash,
                               last + 1,
                               Committed{last + 1'000, Sha256(AsBytes("nothing")), 1},
                               {}});
  world.RunFor(Seconds(2));
  for (size_t i = 0; i < 3; ++i) EXPECT_GT(world.node(i).deliveries.back().averaging, last) << i;
}

TEST(OuterTest, ALiveJobSwitchesToAnOuterOptimizerAndBack) {
  AveragingConfig config = EveryTenSteps(2);
  PeerWorld world(47, config);
  Fill(world, 4);
  world.RunFor(Seconds(1));
  EXPECT_TRUE(world.node(0).kernels.empty());
  const auto change = [&](const OuterOptimizer& outer) {
    config.outer = outer;
    ++config.generation;
    for (size_t i = 0; i < 4; ++i) world.Local(i, ConfigChanged{config});
    world.RunFor(Seconds(2));
  };
  change({OuterKind::kNesterov, 0.7, 0.9});
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GE(Count(world.node(i), MixKernel::kOuterStep), 5U);
    EXPECT_LE(Count(world.node(i), MixKernel::kOuterBegin), 1U);
    EXPECT_EQ(world.node(i).deliveries.back().region, Region::kInboxA);
    EXPECT_EQ(world.node(i).deliveries.back().parts, StateParts::kAverageAndVelocity);
  }
  change({OuterKind::kSgd, 0.5, 0});
  EXPECT_EQ(world.node(0).deliveries.back().parts, StateParts::kAverage);
  EXPECT_LE(Count(world.node(0), MixKernel::kOuterBegin), 1U) << "the base is the same";
  change({});
  const size_t kernels = world.node(0).kernels.size();
  const size_t deliveries = world.node(0).deliveries.size();
  world.RunFor(Seconds(1));
  EXPECT_EQ(world.node(0).kernels.size(), kernels);
  EXPECT_GT(world.node(0).deliveries.size(), deliveries);
  ExpectAgreement(world);
}

// With Float16 means are averaged, with Int8 changes from the base.
void ExpectWarmUp(WireFormat compression) {
  AveragingConfig config = Outer(OuterKind::kNesterov);
  config.compression = compression;
  config.outer.warmup_samples = 4 * 8 * 60;  // sixty steps of four
  PeerWorld world(49, config);
  Fill(world, 4);
  world.RunFor(Seconds(3));
  for (size_t i = 0; i < 4; ++i) {
    const PeerWorld::Node& node = world.node(i);
    std::vector<bool> steps;  // of each average
    for (const RunKernel& kernel : node.kernels)
      if (kernel.kernel != MixKernel::kKeepRest) steps.push_back(!kernel.scalars.empty());
    ASSERT_EQ(steps.size(), node.deliveries.size());
    for (size_t k = 1; k < steps.size(); ++k)
      EXPECT_EQ(steps[k], node.deliveries[k - 1].job_samples >= 4 * 8 * 60) << k;
    // A snapshot and its round take two or three steps; afterwards an interval is ten.
    const auto stepped = std::count(steps.begin(), steps.end(), true);
    EXPECT_GT(std::ssize(steps) - stepped, 18);
    EXPECT_GT(stepped, 15);
    EXPECT_LT(stepped, 26);
    EXPECT_EQ(world.node(i).At(Region::kInboxA).values, world.node(0).At(Region::kInboxA).values);
  }
}

TEST(OuterTest, UntilTheJobIsWarmAllAverageEveryStepAndNoAverageIsAStep) {
  ExpectWarmUp(WireFormat::kFloat16);
  ExpectWarmUp(WireFormat::kInt8);
}

// A joiner has the job's count with its state.
TEST(OuterTest, AJobThatWasWarmOnceStaysWarm) {
  AveragingConfig config = Outer(OuterKind::kNesterov);
  config.outer.warmup_samples = 4 * 8 * 20;
  PeerWorld world(50, config);
  Fill(world, 4);
  world.RunFor(Seconds(2));
  const size_t begins = Count(world.node(0), MixKernel::kOuterBegin);
  world.Kill(3);
  world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(2));
  EXPECT_EQ(Count(world.node(0), MixKernel::kOuterBegin), begins);
  EXPECT_EQ(Count(world.node(4), MixKernel::kOuterBegin), 0U);
  EXPECT_GE(Count(world.node(4), MixKernel::kOuterStep), 5U);
}

// Rate one and no momentum: every average is the one of a job without an outer optimizer.
TEST(OuterTest, RateOneWithoutMomentumIsTheJobWithoutOne) {
  AveragingConfig plain = EveryTenSteps(2);
  AveragingConfig identity = plain;
  identity.outer = {.kind = OuterKind::kNesterov, .learning_rate = 1, .momentum = 0};
  std::vector<std::map<AveragingId, Values>> averages;
  for (const AveragingConfig& config : {plain, identity}) {
    PeerWorld world(48, config);
    Fill(world, 4);
    auto& seen = averages.emplace_back();
    for (int i = 0; i < 10; ++i) {
      RunToDelivery(world, 0);
      const Deliver& last = world.node(0).deliveries.back();
      seen[last.averaging] = world.node(0).At(last.region).values;
    }
  }
  size_t compared = 0;
  for (const auto& [averaging, values] : averages[0]) {
    const auto same = averages[1].find(averaging);
    if (same == averages[1].end()) continue;
    ++compared;
    EXPECT_EQ(values, same->second) << averaging;
  }
  EXPECT_GE(compared, 8U);
}

}  // namespace
}  // namespace crowdsurf::worker
