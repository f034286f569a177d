#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/model/world/round_world.h"

namespace crowdsurf::worker::testing {
namespace {

uint64_t Wanted(const char* variable, uint64_t usual) {
  const char* wanted = std::getenv(variable);
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : usual;
}

// CROWDSURF_SEEDS and CROWDSURF_FIRST_SEED choose other runs; a single seed is traced.
uint64_t FirstSeed() { return Wanted("CROWDSURF_FIRST_SEED", 1); }

void Add(RoundWorld::Tally& sum, const RoundWorld::Tally& one) {
  sum.fast += one.fast;
  sum.repaired += one.repaired;
  sum.adopted += one.adopted;
  sum.kept += one.kept;
  sum.aborted += one.aborted;
  sum.orphaned += one.orphaned;
  sum.dead += one.dead;
  sum.quorum_lost += one.quorum_lost;
  sum.whole += one.whole;
  sum.late += one.late;
  sum.events += one.events;
  sum.waiting_by_rank += one.waiting_by_rank;
}

TEST(RoundWorldTest, SurvivorsOfAnyFaultsEndWithTheSameBits) {
  RoundWorld::Tally sum;
  const uint64_t seeds = Wanted("CROWDSURF_SEEDS", 10'000);
  int failures = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds && failures < 5; ++seed) {
    WorldOptions options;
    options.seed = seed;
    options.codec = seed % 8 == 0;
    options.trace = seeds == 1;
    RoundWorld world(options);
    const std::string failure = world.Run();
    EXPECT_EQ(failure, "");
    failures += failure.empty() ? 0 : 1;
    Add(sum, world.tally());
  }
  printf(
      "seeds %lu: members fast %d, repaired %d, adopted %d, kept %d, aborted %d, orphaned %d; dead "
      "%d; worlds without quorum %d; nudges %d; events %zu\n",
      static_cast<unsigned long>(seeds), sum.fast, sum.repaired, sum.adopted, sum.kept, sum.aborted,
      sum.orphaned, sum.dead, sum.quorum_lost, sum.late, sum.events);
  if (seeds < 1000) return;
  EXPECT_GT(sum.fast, 0);
  EXPECT_GT(sum.repaired, 0);
  EXPECT_GT(sum.adopted, 0);
  EXPECT_LT(sum.aborted, sum.repaired / 50);
  EXPECT_GT(sum.waiting_by_rank, sum.events / 10);
}

// The least seed that turns the checkers red, and what they said.
std::string Caught(Bug bug, WorldOptions options, uint64_t seeds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    options.seed = seed;
    options.bug = bug;
    std::string failure = RoundWorld(options).Run();
    if (!failure.empty()) return failure;
  }
  return "not caught";
}

struct Planted {
  const char* name;
  Bug bug;
  const char* caught_by;    // statements, any of them
  WorldOptions world = {};  // where it shows soon
};

class PlantedTest : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedTest, TurnsTheCheckersRed) {
  const std::string failure = Caught(GetParam().bug, GetParam().world, 20'000);
  printf("%s: %s\n", GetParam().name, failure.c_str());
  EXPECT_NE(std::string(GetParam().caught_by).find(failure.substr(0, 2)), std::string::npos)
      << failure;
}

// Two members that distrust each other, and an even number of witnesses that miss much.
constexpr WorldOptions kHalves = {
    .members = 2, .outside_witnesses = 4, .loss = 0.3, .crash = 0, .false_suspicion = 0.8};
constexpr WorldOptions kCalm = {.members = 4, .loss = 0, .calm = true};

// Nor is it the world, or the lie alone, that turns the checkers red.
TEST(PlantedControlTest, WithoutTheFaultTheyStayGreen) {
  EXPECT_EQ(Caught(Bug::kNone, kHalves, 1'000), "not caught");
  EXPECT_EQ(Caught(Bug::kTwoWeights, kCalm, 1'000), "not caught");
}

INSTANTIATE_TEST_SUITE_P(
    Faults, PlantedTest,
    ::testing::Values(Planted{"ApplyWithoutWaitingForHave", Bug::kApplyEarly, "S1 S3 S5"},
                      Planted{"FastPathOnAMajority", Bug::kFastOnMajority, "S1 S3 S4"},
                      Planted{"WitnessForgets", Bug::kWitnessForgets, "S1 S3 S4"},
                      Planted{"PlanWithoutPromises", Bug::kIgnorePromises, "S1 S3 S4"},
                      Planted{"AcceptedValuesIgnored", Bug::kIgnoreAccepted, "S1 S3 S4"},
                      Planted{"ResultsStoredUntold", Bug::kStoreUntold, "S1 S2 S4 S5 S6"},
                      Planted{"TwoMasksAndNoRootCheck", Bug::kTwoMasks, "S1 S4 S5"},
                      Planted{"AcceptBeforeAllHold", Bug::kAcceptEarly, "S3 S4 L1"},
                      Planted{"FoldedInAnotherOrder", Bug::kFoldBackwards, "S5"},
                      Planted{"FlagBeforeTheLastChunk", Bug::kFlagEarly, "S2 S5"},
                      Planted{"CommittedWithoutWitnesses", Bug::kNoWitnesses, "S1 S3 S4"},
                      Planted{"HalfOfTheWitnessesIsEnough", Bug::kHalfIsEnough, "S1 S3 S4",
                              kHalves},
                      Planted{"FastPathNotClosedByStatus", Bug::kFastAfterStatus, "S1 S3 S4"},
                      Planted{"RootWithoutWeights", Bug::kRootWithoutWeights, "S1 S5", kCalm},
                      Planted{"FoldedOnArrival", Bug::kFoldOnArrival, "S5"},
                      Planted{"CompleteValuesIgnored", Bug::kPlanIgnoresComplete, "S1 S3 S4"}),
    [](const auto& planted) { return std::string(planted.param.name); });

}  // namespace
}  // namespace crowdsurf::worker::testing
