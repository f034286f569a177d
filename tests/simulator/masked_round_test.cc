// Rounds under masks of coordinates, with the faults of the other seeds: deaths, repairs, adoption,
// loss, liars; and that a mask which is lost on the way is seen.
#include <gtest/gtest.h>

#include "tests/simulator/round_cases.h"

namespace crowdsurf::simulator {
namespace {

RoundScenario MaskedScenario(uint64_t seed) {
  RoundScenario scenario = DrawScenario(seed);
  scenario.masked = true;
  return scenario;
}

TEST(MaskedRounds, NoStatementIsBrokenInAnyOfAThousandSeeds) {
  const Ends ends = NothingIsBroken(1'000, MaskedScenario);
  EXPECT_GT(ends.repaired, 500U) << "the faults are too mild to say anything";
  EXPECT_GT(ends.adopted, 50U);
}

TEST(MaskedRounds, ALiarsInputsAreLeftOut) {
  for (const Plant plant :
       {Plant::kLieNan, Plant::kLieWeights, Plant::kLieResults, Plant::kLieHaves}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      RoundScenario scenario = Calm(4, seed);
      scenario.masked = true;
      scenario.chunk_elements = 3;
      scenario.plant = plant;
      scenario.planted = 1;
      const RoundReport report = RunRound(scenario);
      EXPECT_TRUE(report.violations.none()) << "seed " << seed << Words(report);
    }
  }
}

// How many of the seeds break a statement.
uint64_t Broken(Plant plant, const std::string& statement, bool deaths) {
  uint64_t broken = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RoundScenario scenario = Calm(4, seed);
    scenario.masked = true;
    scenario.elements = 32;
    scenario.chunk_elements = 3;
    if (deaths) scenario.deaths = {{0, 0}};
    scenario.plant = plant;
    scenario.planted = 1;
    broken += RunRound(scenario).violations.Count(statement) > 0 ? 1 : 0;
  }
  return broken;
}

TEST(MaskedRounds, AMaskThatItsMemberIgnoresIsS5) {
  EXPECT_EQ(Broken(Plant::kNone, "S5", false), 0U);
  EXPECT_GT(Broken(Plant::kIgnoredMask, "S5", false), 15U);
}

TEST(MaskedRounds, AMaskThatIsLostInARepairIsS6) {
  EXPECT_EQ(Broken(Plant::kNone, "S6", true), 0U);
  EXPECT_EQ(Broken(Plant::kUnmaskedAgain, "S6", false), 0U) << "nothing is sent again";
  EXPECT_GT(Broken(Plant::kUnmaskedAgain, "S6", true), 10U);
}

}  // namespace
}  // namespace crowdsurf::simulator
