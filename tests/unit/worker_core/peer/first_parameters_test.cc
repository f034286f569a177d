// Trainers that begin with parameters of their own: all of a view start from those of its first
// member, whichever member dies, and nobody waits for ever (docs/views.md, First parameters).
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/worker_core/world/peer_world.h"
#include "worker/core/peer/peer.h"

namespace crowdsurf::worker {
namespace {

using Values = PeerWorld::Values;

// What each began with differs from what any other did.
size_t AddApart(PeerWorld& world, int island = 0) {
  world.gives_first = true;
  const size_t i = world.Add(Milliseconds(20), island);
  world.node(i).x.assign(world.node(i).x.size(), static_cast<double>(i) + 1);
  world.node(i).drift = 0.01 * static_cast<double>(i + 1);
  return i;
}

void Fill(PeerWorld& world, size_t members) {
  for (size_t i = 0; i < members; ++i) AddApart(world);
}

// Averagings begin after the test.
AveragingConfig Seldom() {
  AveragingConfig config = EveryTenSteps();
  config.interval = 100'000;
  return config;
}

std::set<Values> Starts(PeerWorld& world) {
  std::set<Values> starts;
  for (size_t i = 0; i < world.size(); ++i)
    if (world.Alive(i) && world.node(i).running) starts.insert(world.node(i).began);
  return starts;
}

// The one whose parameters are asked for, and that is held.
std::optional<size_t> Giver(PeerWorld& world) {
  for (size_t i = 0; i < world.size(); ++i)
    if (world.Alive(i) && world.node(i).publish && !world.node(i).running) return i;
  return std::nullopt;
}

size_t AwaitGiver(PeerWorld& world) {
  for (int ms = 0; ms < 5'000; ++ms) {
    if (const auto giver = Giver(world)) return *giver;
    world.RunFor(Milliseconds(1));
  }
  ADD_FAILURE() << "nobody is asked" << world.Describe();
  return 0;
}

double Counted(PeerWorld& world, const char* result) {
  double all = 0;
  for (size_t i = 0; i < world.size(); ++i)
    all += world.node(i).metrics().Value("crowdsurf_first_parameters_total", {{"result", result}});
  return all;
}

TEST(FirstParametersTest, AllStartFromThoseOfTheFirstMember) {
  for (const size_t members : {2U, 3U, 8U, 16U}) {
    PeerWorld world(members, EveryTenSteps());
    Fill(world, members);
    const auto took = world.UntilTogether(Seconds(5));
    ASSERT_TRUE(took) << members << world.Describe();
    EXPECT_LT(took->seconds(), 1) << members;
    EXPECT_EQ(Starts(world).size(), 1U) << members;
    EXPECT_EQ(Counted(world, "given"), 1) << members;
    EXPECT_EQ(Counted(world, "none") + Counted(world, "own"), 0) << members;
    size_t own = 0;
    for (size_t i = 0; i < members; ++i) {
      EXPECT_TRUE(world.node(i).running) << i;
      own += world.node(i).fetches.empty();
    }
    EXPECT_EQ(own, 1U);
    world.RunFor(Seconds(2));
    ExpectAgreement(world);
    for (size_t i = 0; i < members; ++i) {
      EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << i;
      EXPECT_GE(world.node(i).deliveries.size(), 10U) << i;
    }
  }
}

TEST(FirstParametersTest, AnAverageTakesTheirPlaceForLaterJoiners) {
  PeerWorld world(3, EveryTenSteps());
  Fill(world, 3);
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  const Values first = world.node(0).began;
  world.RunFor(Seconds(1));
  const size_t late = AddApart(world);
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  EXPECT_NE(world.node(late).began, first);
  EXPECT_NE(world.node(late).began, Values(first.size(), static_cast<double>(late) + 1));
}

TEST(FirstParametersTest, AJobOfOneStartsFromItsOwnAndAverages) {
  PeerWorld world(1, EveryTenSteps());
  AddApart(world);
  world.RunFor(Milliseconds(400));
  EXPECT_TRUE(world.node(0).running);
  EXPECT_EQ(world.node(0).began, Values(64, 1));
  world.RunFor(Seconds(1));
  EXPECT_GE(world.node(0).deliveries.size(), 5U);
  EXPECT_TRUE(world.node(0).fetches.empty());
  // The first average follows the number of the first parameters, and counts from no sample.
  EXPECT_EQ(world.node(0).deliveries.front().averaging, AveragingId(2));
  EXPECT_EQ(world.node(0).deliveries.front().job_samples, world.node(0).deliveries.front().samples);
}

TEST(FirstParametersTest, WhenTheFirstMemberDiesBeforeItGaveThemTheNextOneGivesIts) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PeerWorld world(seed, Seldom());
    Fill(world, 4);
    const size_t giver = AwaitGiver(world);
    world.Kill(giver);
    ASSERT_TRUE(world.UntilTogether(Seconds(20))) << seed << world.Describe();
    ASSERT_EQ(Starts(world).size(), 1U) << seed;
    EXPECT_NE(*Starts(world).begin(), Values(64, static_cast<double>(giver) + 1)) << seed;
  }
}

TEST(FirstParametersTest, WhenItDiesWhileTheyAreFetchedAllStillStartEqual) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PeerWorld world(seed, Seldom());
    world.fetch_takes = Milliseconds(300);
    Fill(world, 4);
    const size_t giver = AwaitGiver(world);
    world.RunFor(Milliseconds(100));
    world.Kill(giver);
    ASSERT_TRUE(world.UntilTogether(Seconds(20))) << seed << world.Describe();
    EXPECT_EQ(Starts(world).size(), 1U) << seed;
  }
}

TEST(FirstParametersTest, WhoHasFetchedThemGivesThemOnWhenTheFirstMemberIsGone) {
  PeerWorld world(7, Seldom());
  Fill(world, 3);
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  const Values first = world.node(0).began;
  for (size_t i = 0; i < 3; ++i)
    if (world.node(i).fetches.empty()) world.Kill(i);
  AddApart(world);
  ASSERT_TRUE(world.UntilTogether(Seconds(10))) << world.Describe();
  EXPECT_EQ(Starts(world), std::set<Values>{first});
}

TEST(FirstParametersTest, ATrainerThatDoesNotGiveThemHoldsNobodyForEver) {
  PeerWorld world(4, EveryTenSteps());
  for (size_t i = 0; i < 3; ++i) world.node(AddApart(world)).silent = true;
  world.RunFor(Seconds(10));
  for (size_t i = 0; i < 3; ++i) EXPECT_FALSE(world.node(i).running) << i;
  ASSERT_TRUE(world.UntilTogether(Seconds(15))) << world.Describe();
  EXPECT_EQ(Starts(world).size(), 3U);
  EXPECT_EQ(Counted(world, "none"), 1);
  world.RunFor(Seconds(2));
  ExpectAgreement(world);
  for (size_t i = 0; i < 3; ++i) EXPECT_GE(world.node(i).deliveries.size(), 5U) << i;
}

TEST(FirstParametersTest, ASnapshotThatIsNotFiniteHoldsNobody) {
  PeerWorld world(5, EveryTenSteps());
  Fill(world, 3);
  world.node(AwaitGiver(world)).gives_no_snapshot = true;
  ASSERT_TRUE(world.UntilTogether(Seconds(2))) << world.Describe();
  EXPECT_EQ(Starts(world).size(), 3U);
  EXPECT_EQ(Counted(world, "none"), 1);
}

TEST(FirstParametersTest, WhoCannotFetchThemStartsFromItsOwnAtLast) {
  PeerWorld world(6, Seldom());
  world.fetch_fails = true;
  Fill(world, 3);
  world.RunFor(Seconds(20));
  EXPECT_EQ(Starts(world).size(), 1U);  // the first one's
  ASSERT_TRUE(world.UntilTogether(Seconds(20))) << world.Describe();
  EXPECT_EQ(Starts(world).size(), 3U);
  EXPECT_EQ(Counted(world, "own"), 2);
}

// Two first views, each with first parameters of its own and of one number.
TEST(FirstParametersTest, OfTwoJobsThatMeetBeforeAnAverageOneHasItsWay) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PeerWorld world(seed, Seldom());
    for (int i = 0; i < 4; ++i) AddApart(world, i < 2 ? 0 : 1);
    world.RunFor(Seconds(2));
    ASSERT_EQ(Starts(world).size(), 2U) << seed;
    const std::set<Values> before = Starts(world);
    for (size_t i = 0; i < 4; ++i) world.node(i).island = 0;
    ASSERT_TRUE(world.UntilTogether(Seconds(20))) << seed << world.Describe();
    ASSERT_EQ(Starts(world).size(), 1U) << seed;
    EXPECT_TRUE(before.contains(*Starts(world).begin())) << seed;
  }
}

// The view that it meets again had sent it to fetch, which failed. What it has now is its own.
TEST(FirstParametersTest, WhoGaveItsOwnAfterAFetchThatFailedTakesThoseOfTheBetterLineage) {
  PeerWorld world(3, Seldom());
  Fill(world, 2);
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.fetch_takes = Milliseconds(500);
  const size_t last = AddApart(world);
  for (int ms = 0; ms < 5'000 && world.node(last).fetches.empty(); ++ms)
    world.RunFor(Milliseconds(1));
  ASSERT_FALSE(world.node(last).fetches.empty());
  world.node(last).island = 1;
  world.fetch_fails = true;
  world.RunFor(Seconds(10));
  ASSERT_TRUE(world.node(last).running) << world.Describe();
  ASSERT_EQ(Starts(world).size(), 2U);
  world.fetch_fails = false;
  world.node(last).island = 0;
  ASSERT_TRUE(world.UntilTogether(Seconds(20))) << world.Describe();
  EXPECT_EQ(Starts(world).size(), 1U);
}

TEST(FirstParametersTest, ARestoredCheckpointComesBeforeThem) {
  PeerWorld world(8, EveryTenSteps());
  world.gives_first = true;
  const Digest root = RootOf(Values(64, 0));
  world.Add(Milliseconds(20), 0,
            RestoredCheckpoint{.averaging = AveragingId(30), .job_samples = 5, .root = root});
  for (int i = 0; i < 2; ++i) AddApart(world);
  ASSERT_TRUE(world.UntilTogether(Seconds(5))) << world.Describe();
  EXPECT_EQ(Starts(world), std::set<Values>{Values(64, 0)});
  EXPECT_EQ(Counted(world, "given"), 0);
}

TEST(FirstParametersTest, AFirstMemberThatKnowsNothingOfThemKeepsNobodyWaiting) {
  PeerWorld world(9, EveryTenSteps());
  world.Add();
  world.RunFor(Milliseconds(300));
  for (int i = 0; i < 2; ++i) AddApart(world);
  ASSERT_TRUE(world.UntilTogether(Seconds(2))) << world.Describe();
  EXPECT_EQ(Counted(world, "given") + Counted(world, "none"), 0);
}

TEST(FirstParametersTest, AnOuterOptimizerStepsFromThem) {
  AveragingConfig config = EveryTenSteps();
  config.outer = {.kind = OuterKind::kNesterov, .learning_rate = 0.7, .momentum = 0.9};
  PeerWorld world(10, config);
  Fill(world, 4);
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(1));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(world.node(i).metrics().Value("crowdsurf_averaging_outer_total", {{"kind", "begin"}}),
              0)
        << i;
    EXPECT_GE(world.node(i).metrics().Value("crowdsurf_averaging_outer_total", {{"kind", "step"}}),
              5)
        << i;
  }
}

TEST(FirstParametersTest, EveryStrategyGoesOnFromThem) {
  for (const StrategyKind kind :
       {StrategyKind::kMoshpit, StrategyKind::kAllReduce, StrategyKind::kGossip,
        StrategyKind::kA2CiD2, StrategyKind::kRelaySum, StrategyKind::kIst}) {
    for (const size_t members : {1U, 4U}) {
      AveragingConfig config = EveryTenSteps();
      config.strategy = kind;
      PeerWorld world(11, config);
      Fill(world, members);
      ASSERT_TRUE(world.UntilTogether(Seconds(5))) << members << world.Describe();
      world.RunFor(Seconds(3));
      EXPECT_EQ(Starts(world).size(), 1U) << members;
      for (size_t i = 0; i < members; ++i) {
        EXPECT_GT(world.Summary(i).averaging, AveragingId(2)) << members << " " << i;
        EXPECT_GT(world.Summary(i).job_samples, 0) << members << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace crowdsurf::worker
