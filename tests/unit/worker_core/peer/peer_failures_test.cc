// Real peers in a small world that die, leave and are slandered: rounds go on, and views heal
// (docs/round.md, docs/views.md). The last test draws what happens from seeds.
#include "worker/core/peer/peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {
namespace {

// CROWDSURF_TEST_SEED replays one seed.
uint64_t FirstSeed() {
  const char* seed = std::getenv("CROWDSURF_TEST_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}
uint64_t LastSeed() {
  const char* seeds = std::getenv("CROWDSURF_TEST_SEEDS");
  return FirstSeed() + (seeds == nullptr ? 8 : std::strtoull(seeds, nullptr, 10)) - 1;
}

TEST(PeerFailureTest, OneThatIsKilledCostsNobodyTheRoundAndItsReplacementTakesItsCell) {
  for (uint64_t seed = FirstSeed(); seed <= LastSeed(); ++seed) {
    PeerWorld world(seed, EveryTenSteps());
    for (int i = 0; i < 8; ++i) world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    Rng rng(seed);
    size_t next = 0;
    for (int kill = 0; kill < 6; ++kill) {
      world.RunFor(Milliseconds(500) + Microseconds(static_cast<int64_t>(rng.Uniform(200'000))));
      while (!world.Alive(next)) ++next;
      world.Kill(next);
      world.RunFor(Milliseconds(300));
      world.Add();
    }
    ASSERT_TRUE(world.UntilTogether(Seconds(5))) << seed;
    world.RunFor(Milliseconds(500));
    ExpectAgreement(world);
    for (size_t i = 0; i < world.size(); ++i) {
      if (!world.Alive(i)) continue;
      EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << "seed " << seed << " peer " << i;
      EXPECT_EQ(world.Summary(i).view->members, 8U);
    }
  }
}

TEST(PeerFailureTest, WhoDiesIsNamedAsLostAndWhoLeavesIsNot) {
  PeerWorld world(11, EveryTenSteps());
  for (int i = 0; i < 6; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Milliseconds(500));
  for (size_t i = 0; i < 6; ++i) EXPECT_THAT(world.Summary(i).lost, testing::IsEmpty());
  world.Kill(2);
  world.Local(3, LeaveAsked{});
  world.RunFor(Seconds(3));
  for (const size_t i : {0u, 1u, 4u, 5u}) {
    EXPECT_THAT(world.Summary(i).lost, testing::ElementsAre("w2")) << i;
    EXPECT_TRUE(world.Summary(i).witness);
  }
  for (int i = 0; i < 4; ++i) world.Add();  // a new view: who died before it is dead in it, too
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  EXPECT_THAT(world.Summary(0).lost, testing::Contains("w2"));
}

// It stays up, answers nothing about the view that it left, and the others know it at other times.
TEST(PeerFailureTest, OneThatGivesItsSeatBackCostsNobodyARound) {
  for (uint64_t seed = FirstSeed(); seed <= 25 * LastSeed(); ++seed) {
    AveragingConfig config = EveryTenSteps(2);
    config.interval = 100;
    PeerWorld world(seed, config);
    world.jitter = 3;
    for (int i = 0; i < 4; ++i) {
      world.Add();
      world.node(static_cast<size_t>(i)).step_time = Milliseconds(2);
    }
    ASSERT_TRUE(world.UntilTogether(Seconds(5))) << seed;
    Rng rng(seed);
    const size_t gone = rng.Uniform(4);
    world.node(gone).gives_no_snapshot = true;
    // On every second seed the steward alone hears that it leaves.
    const bool lost = seed % 2 == 0 && !world.Summary(gone).steward;
    world.lose = [&](size_t from, size_t to, const Message& message) {
      return lost && from == gone && std::holds_alternative<message::Leaving>(message) &&
             !world.Summary(to).steward;
    };
    world.RunFor(Seconds(4));
    ExpectAgreement(world);
    for (size_t i = 0; i < 4; ++i) {
      if (i == gone) continue;
      EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << "seed " << seed << " peer " << i;
    }
  }
}

TEST(PeerFailureTest, OneThatLeavesExitsSoonAndTheOthersGoOn) {
  PeerWorld world(6, EveryTenSteps());
  for (int i = 0; i < 4; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Milliseconds(730));
  world.Local(0, LeaveAsked{});  // the steward, the longest-lived
  world.RunFor(Milliseconds(300));
  EXPECT_EQ(world.node(0).leaves.size(), 1U);
  ASSERT_TRUE(world.UntilTogether(Seconds(3)));
  world.RunFor(Seconds(1));
  ExpectAgreement(world);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(world.Summary(i).rounds.failed(), 0U);
}

// Their records say that they leave as soon as they begin to, and the steward reads them.
TEST(PeerFailureTest, ThoseThatLeaveFinishTheRoundThatTheyAreIn) {
  for (uint64_t seed = FirstSeed(); seed <= 2 * LastSeed(); ++seed) {
    PeerWorld world(seed, EveryTenSteps());
    for (int i = 0; i < 8; ++i) {
      world.Add();
      world.node(static_cast<size_t>(i)).step_time = Milliseconds(60 + 5 * i);  // all are awaited
    }
    ASSERT_TRUE(world.UntilTogether(Seconds(10))) << seed;
    Rng rng(seed);
    world.RunFor(Milliseconds(500) + Milliseconds(static_cast<int64_t>(rng.Uniform(600))));
    for (size_t i = 2; i < 5; ++i) world.Local(i, LeaveAsked{});
    world.RunFor(Seconds(4));
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << "seed " << seed << " peer " << i;
      EXPECT_EQ(world.node(i).leaves.size(), i >= 2 && i < 5 ? 1U : 0U) << "seed " << seed;
    }
  }
}

TEST(PeerFailureTest, MostDieAtOnceAndTheRestBranchesAndGoesOn) {
  PeerWorld world(7, EveryTenSteps());
  for (int i = 0; i < 8; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Milliseconds(700));
  for (size_t i = 0; i < 6; ++i) world.Kill(i);
  const auto took = world.UntilTogether(Seconds(10));
  ASSERT_TRUE(took);
  const AveragingId before = world.Summary(6).averaging;
  world.RunFor(Seconds(1));
  EXPECT_TRUE(world.Summary(6).view->branch);
  double lost = 0;
  for (const size_t i : {6, 7})
    lost += world.node(i).metrics().Value("crowdsurf_round_witness_quorum_lost_total");
  EXPECT_GE(lost, 1);
  EXPECT_GE(world.Summary(6).averaging, before + 4);
  ExpectAgreement(world);
}

// Three of five die. The oldest survivor branches, and the other one hears no message of it. It
// sees its record, so it makes no second branch, which would commit once more what the first one
// does.
TEST(PeerFailureTest, WhoIsLeftAloneMakesNoBranchWhileAnotherGoesOnElsewhere) {
  PeerWorld world(5, EveryTenSteps());
  for (int i = 0; i < 5; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  size_t first = 0;
  while (!world.Summary(first).steward) ++first;
  const size_t left = first == 4 ? 3 : 4;
  bool deaf = true;
  world.lose = [&](size_t from, size_t to, const Message&) {
    return deaf && (from == left || to == left);
  };
  for (size_t i = 0; i < 5; ++i)
    if (i != first && i != left) world.Kill(i);
  world.RunFor(Seconds(8));
  const auto branches = [&](size_t i) {
    return world.node(i).metrics().Value("crowdsurf_round_branches_total");
  };
  EXPECT_EQ(branches(first), 1);
  EXPECT_EQ(branches(left), 0);
  deaf = false;
  EXPECT_TRUE(world.UntilTogether(Seconds(5))) << world.Describe();
  EXPECT_EQ(branches(first) + branches(left), 1);
  world.RunFor(Milliseconds(500));
  ExpectAgreement(world);
}

// Four of seven die, and the others hear nothing of each other. The oldest branches. The next one
// has somebody to ask, who does not come along; by then it sees in the roster where the job lives
// on.
TEST(PeerFailureTest, WhomNobodyFollowsMakesNoBranchWhileAnotherGoesOnElsewhere) {
  PeerWorld world(5, EveryTenSteps());
  for (int i = 0; i < 7; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  size_t first = 0;
  while (!world.Summary(first).steward) ++first;
  std::vector<size_t> left;
  for (size_t i = 0; i < 7 && left.size() < 2; ++i)
    if (i != first) left.push_back(i);
  bool deaf = true;
  world.lose = [&](size_t, size_t, const Message&) { return deaf; };
  for (size_t i = 0; i < 7; ++i)
    if (i != first && i != left[0] && i != left[1]) world.Kill(i);
  world.RunFor(Seconds(12));
  const auto branches = [&](size_t i) {
    return world.node(i).metrics().Value("crowdsurf_round_branches_total");
  };
  EXPECT_EQ(branches(first), 1);
  EXPECT_EQ(branches(left[0]) + branches(left[1]), 0);
  deaf = false;
  EXPECT_TRUE(world.UntilTogether(Seconds(10))) << world.Describe();
}

// One calls most of the others dead by mistake, and begins a branch that nobody hears of. Then the
// view's own successor comes. The others may have counted what it gave to a round that it is in.
TEST(PeerFailureTest, TheOrderlySuccessorBreaksUpNoRoundOfOneThatHadBegunABranch) {
  PeerWorld world(5, EveryTenSteps());
  for (int i = 0; i < 8; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  size_t wrong = 0, live = 1;  // no steward, and the one that would lead the two
  while (world.Summary(wrong).steward || world.Summary(live).steward) ++wrong, ++live;
  if (world.node(live).id() < world.node(wrong).id()) std::swap(wrong, live);
  world.lose = [&](size_t from, size_t, const Message& message) {
    return from == wrong && std::holds_alternative<message::BranchOpen>(message);
  };
  for (size_t i = 0; i < 8; ++i)
    if (i != wrong && i != live) world.Slander(wrong, i);
  const auto count = [&](const char* metric) { return world.node(wrong).metrics().Value(metric); };
  ASSERT_EQ(count("crowdsurf_round_witness_quorum_lost_total"), 1);
  world.Add(Duration());  // there is no cell for it, so it needs a new view
  world.RunFor(Milliseconds(500));
  ASSERT_TRUE(world.UntilTogether(Seconds(10))) << world.Describe();
  EXPECT_EQ(count("crowdsurf_round_branches_total"), 0);
  // It took the others for dead, so it may have ended that averaging alone. The next ones agree.
  world.RunFor(Milliseconds(500));
  for (size_t i = 1; i < world.size(); ++i) {
    EXPECT_EQ(world.Summary(i).job_samples, world.Summary(0).job_samples) << i;
    EXPECT_EQ(world.Summary(i).divergence, 0U) << i;
  }
}

TEST(PeerFailureTest, TheTargetEndsTheJobAtEverybodyAndOneWritesTheModel) {
  AveragingConfig config = EveryTenSteps();
  config.target.samples = 5000;
  PeerWorld world(8, config);
  for (int i = 0; i < 4; ++i) world.Add();
  world.RunFor(Seconds(10));
  size_t models = 0;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(world.node(i).stopped) << i;
    EXPECT_TRUE(world.Summary(i).target_met);
    models += world.node(i).checkpoints.size();
  }
  EXPECT_EQ(models, 1U);
  EXPECT_GE(world.Summary(0).job_samples, 5000);
}

// Random sizes, group sizes and delays; several die at once, some leave, some come, one is
// slandered. Whatever happens: no divergence, nothing hangs, and in the end they are together and
// averaging.
TEST(PeerFailureTest, WhateverHappensTheyEndTogetherAndGoOn) {
  for (uint64_t seed = FirstSeed(); seed <= LastSeed(); ++seed) {
    Rng rng(seed * 7919);
    PeerWorld world(seed, EveryTenSteps(static_cast<uint16_t>(2 + rng.Uniform(4))));
    world.jitter = rng.Bernoulli(0.7) ? 10 * rng.UniformDouble() : 0;
    const size_t members = 2 + rng.Uniform(10);
    for (size_t i = 0; i < members; ++i)
      world.Add(Milliseconds(static_cast<int64_t>(rng.Uniform(400))));
    for (int event = 0; event < 8; ++event) {
      world.RunFor(Microseconds(static_cast<int64_t>(rng.Uniform(700'000))));
      std::vector<size_t> live;
      for (size_t i = 0; i < world.size(); ++i)
        if (world.Alive(i)) live.push_back(i);
      const size_t some = live[rng.Uniform(live.size())];
      switch (rng.Uniform(4)) {
        case 0:
          for (size_t i = 0; i < 1 + live.size() / 3 && live.size() > 1; ++i) world.Kill(live[i]);
          break;
        case 1:
          if (live.size() > 2) world.Local(some, LeaveAsked{});
          break;
        case 2:
          for (size_t i = 0; i < 1 + rng.Uniform(3); ++i) world.Add();
          break;
        case 3:
          world.Slander(live[rng.Uniform(live.size())], some);
          break;
      }
    }
    world.Add();  // nobody may be left otherwise
    ASSERT_TRUE(world.UntilTogether(Seconds(30))) << "seed " << seed << world.Describe();
    std::map<size_t, AveragingId> before;
    for (size_t i = 0; i < world.size(); ++i)
      if (world.Alive(i)) before[i] = world.Summary(i).averaging;
    world.RunFor(Seconds(3));
    for (const auto& [i, averaging] : before) {
      EXPECT_EQ(world.Summary(i).divergence, 0U) << "seed " << seed;
      EXPECT_GE(world.Summary(i).averaging, averaging + 5) << "seed " << seed << " peer " << i;
    }
  }
}

}  // namespace
}  // namespace crowdsurf::worker
