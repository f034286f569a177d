// The end of a job: its time, its last average, and what is still to be done after it.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {
namespace {

AveragingConfig UntilSeconds(double seconds) {
  AveragingConfig config = EveryTenSteps();
  config.target.seconds = seconds;
  return config;
}

bool AllStopped(PeerWorld& world) {
  for (size_t i = 0; i < world.size(); ++i)
    if (world.Alive(i) && !world.node(i).stopped) return false;
  return true;
}

TEST(JobEndTest, SecondsOfTheTargetAreTheJobsWhoeverGoverns) {
  PeerWorld world(18, UntilSeconds(6));
  const Time begin = world.now();
  for (int i = 0; i < 4; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  // Everybody who saw the beginning goes, one after the other: each time a younger one governs.
  for (size_t old = 0; old < 4; ++old) {
    world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(3))) << world.Describe();
    world.Kill(old);
    ASSERT_TRUE(world.UntilTogether(Seconds(3))) << world.Describe();
  }
  EXPECT_NEAR(world.Summary(7).job_seconds, (world.now() - begin).seconds(), 0.3);
  EXPECT_FALSE(AllStopped(world));
  world.RunFor(Seconds(6.5) - (world.now() - begin));
  EXPECT_TRUE(AllStopped(world)) << world.Describe();
}

TEST(JobEndTest, AJobThatComesBackGoesOnWithTheSecondsOfItsCheckpoint) {
  PeerWorld world(19, UntilSeconds(100));
  world.Add(Milliseconds(20), 0,
            RestoredCheckpoint{.averaging = AveragingId(40),
                               .job_samples = 1000,
                               .root = Sha256(AsBytes("old")),
                               .job_seconds = 98});
  world.Add(Milliseconds(20));
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  EXPECT_FALSE(AllStopped(world));
  world.RunFor(Seconds(2.5));
  EXPECT_TRUE(AllStopped(world)) << world.Describe();
}

// An interval is longer than the job here: without an averaging before the end nothing would count.
TEST(JobEndTest, WhatWasTrainedBeforeTheEndOfTheTimeIsInTheLastAverage) {
  AveragingConfig config = UntilSeconds(5);
  config.interval = 1'000'000;
  PeerWorld world(23, config);
  for (int i = 0; i < 6; ++i) world.Add();
  const Time begin = world.now();
  ASSERT_TRUE(world.UntilTogether(Seconds(3)));
  while (!AllStopped(world) && world.now() - begin < Seconds(6)) world.RunFor(Milliseconds(1));
  ASSERT_TRUE(AllStopped(world)) << world.Describe();
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(world.node(i).deliveries.size(), 1U) << i;
    EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << i;
    // 10 ms a step: of 5 s all but the last one and what it took to come together.
    EXPECT_GT(world.Summary(i).job_samples, 6 * 3.5 / 0.01 * world.node(i).samples_per_step) << i;
  }
}

// A step may be longer than what is left of the job. Its trainer publishes once more, then stops:
// whoever opened a round then would wait for trainers that are gone.
TEST(JobEndTest, ASnapshotThatComesAfterTheEndBeginsNothing) {
  AveragingConfig config = UntilSeconds(4);
  config.interval = 1'000'000;
  PeerWorld world(24, config);
  for (int i = 0; i < 4; ++i) world.node(world.Add()).step_time = Seconds(30);
  const Time begin = world.now();
  ASSERT_TRUE(world.UntilTogether(Seconds(3)));
  while (!AllStopped(world) && world.now() - begin < Seconds(6)) world.RunFor(Milliseconds(1));
  ASSERT_TRUE(AllStopped(world)) << world.Describe();
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(world.node(i).publish) << i << " was not asked: this tests nothing";
    world.Local(i, Published{*std::exchange(world.node(i).publish, std::nullopt), 8, 1});
  }
  world.RunFor(Milliseconds(500));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(world.node(i).deliveries.empty()) << i;
    EXPECT_EQ(world.Summary(i).rounds.completed() + world.Summary(i).rounds.failed(), 0U) << i;
  }
}

TEST(JobEndTest, TheStateForTheCheckpointIsAskedForBeforeTheTrainerIsToldToStop) {
  PeerWorld world(20, UntilSeconds(1));
  world.Add();
  world.RunFor(Seconds(2));
  EXPECT_EQ(world.node(0).checkpoints, (std::vector<uint64_t>{1}));
  EXPECT_FALSE(world.node(0).checkpoint_after_stop);
}

// Whoever asks late, and whoever counts the job's workers, hears the same as before.
TEST(JobEndTest, AfterTheEndATrainerThatGoesTakesNoNewsAway) {
  PeerWorld world(21, UntilSeconds(1));
  world.Add();
  world.Add();
  world.RunFor(Seconds(2));
  ASSERT_TRUE(AllStopped(world)) << world.Describe();
  world.Local(0, TrainerGone{});
  world.RunFor(Milliseconds(100));
  EXPECT_TRUE(world.Summary(0).target_met);
  ASSERT_TRUE(world.Summary(0).view);
  EXPECT_EQ(world.Summary(0).view->members, 2U);
}

// Strict views begin with a full average at once; the one that ends the job must not, or whoever's
// trainer goes first fails a round for the others.
TEST(JobEndTest, AfterTheEndNoAveragingBegins) {
  AveragingConfig config = UntilSeconds(2);
  config.strategy = StrategyKind::kGossip;
  PeerWorld world(22, config);
  for (int i = 0; i < 4; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  const Time end = world.now() + Seconds(5);
  while (!AllStopped(world) && world.now() < end) world.RunFor(Milliseconds(1));
  ASSERT_TRUE(AllStopped(world)) << world.Describe();
  world.RunFor(Milliseconds(50));  // time to say that one is due, and to begin
  for (size_t i = 0; i < 4; ++i) {
    // Whose trainer goes gives up what has begun: nothing had.
    const uint64_t abandoned = world.Summary(i).averagings_abandoned;
    world.Local(i, TrainerGone{});
    EXPECT_EQ(world.Summary(i).averagings_abandoned, abandoned) << i;
    EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << i;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
