// Rounds under masks of coordinates, with the faults of the other seeds: deaths, repairs, adoption,
// loss, liars; and that a mask which is lost on the way is seen.
#include <gtest/gtest.h>

#include "simulator/seeds.h"
#include "tests/simulator/round_cases.h"

namespace crowdsurf::simulator {
namespace {

RoundScenario MaskedScenario(uint64_t seed) {
  RoundScenario scenario = DrawScenario(seed);
  scenario.masked = true;
  return scenario;
}

TEST(MaskedRounds, NoStatementIsBrokenInAnyOfAThousandSeeds) {
  const auto reports = ForEachSeed<RoundReport>(
      0, 1'000, 2, [](uint64_t seed) { return RunRound(MaskedScenario(seed)); });
  uint64_t repaired = 0, adopted = 0;
  for (uint64_t seed = 0; seed < reports.size(); ++seed) {
    for (const std::string& words : reports[seed].violations.words())
      ADD_FAILURE() << "seed " << seed << ": " << words;
    for (const auto& [node, over] : reports[seed].over) {
      repaired += over.outcome == worker::Outcome::kRepaired ? 1 : 0;
      adopted += over.outcome == worker::Outcome::kAdopted ? 1 : 0;
    }
  }
  EXPECT_GT(repaired, 500U) << "the faults are too mild to say anything";
  EXPECT_GT(adopted, 50U);
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
