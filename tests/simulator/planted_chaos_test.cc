// Every checker of whole jobs is turned red once, by a fault in the host of an agent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "simulator/chaos/chaos_scenario.h"

namespace crowdsurf::simulator {
namespace {

std::string Broken(const Violations& violations) {
  std::string all;
  for (const auto& [statement, count] : violations.counts())
    all += statement + ":" + std::to_string(count) + " ";
  return all;
}

// A job of four, one of which has the fault.
ChaosScenario OfFour(ChaosPlant plant, int planted = 1) {
  ChaosScenario scenario;
  scenario.members = 4;
  scenario.plant = plant;
  scenario.planted = planted;
  scenario.heal = Seconds(3);
  scenario.deadline = Seconds(10);
  return scenario;
}

ChaosReport PlantedChaos(ChaosPlant plant) {
  ChaosScenario scenario = OfFour(plant);
  scenario.joins = {Seconds(1), Seconds(1.5), Seconds(2)};
  return RunChaos(scenario);
}

TEST(PlantedChaosFaults, AJobWithoutOneIsGreen) {
  const ChaosReport report = PlantedChaos(ChaosPlant::kNone);
  EXPECT_TRUE(report.violations.none()) << Broken(report.violations);
}

ChaosReport JobWithAClockThatIsOff(Duration ahead, ChaosPlant plant) {
  ChaosScenario scenario = OfFour(plant);
  scenario.skews = {{1, ahead}};
  // Rounds are further apart than a record lives: in between nobody speaks to all.
  scenario.interval_steps = 60;
  scenario.trainer.step_time = Milliseconds(50);
  scenario.heal = Seconds(10);
  scenario.deadline = Seconds(15);
  scenario.joins = {Seconds(1), Seconds(1.5), Seconds(2)};
  scenario.mild = true;
  return RunChaos(scenario);
}

// A clock is off by more than a record lives. Corrected by the median of the others it costs
// nothing: no round, and no branch.
TEST(PlantedChaosFaults, AClockThatIsOffCostsNothingUnlessNobodyMindsTheOthers) {
  for (const double ahead : {3.5, 2.2, 1.0, -1.0, -3.5}) {
    const ChaosReport sound = JobWithAClockThatIsOff(Seconds(ahead), ChaosPlant::kNone);
    EXPECT_TRUE(sound.violations.none()) << ahead << ": " << Broken(sound.violations);
    EXPECT_EQ(sound.branches, 0U) << ahead;
    const ChaosReport own = JobWithAClockThatIsOff(Seconds(ahead), ChaosPlant::kOwnClock);
    // It sees nobody, and stays alone; or the others do not see it, and take its seat.
    EXPECT_GT(own.violations.Count("healed"), 0U) << ahead;
  }
}

TEST(PlantedChaosFaults, AResultDeliveredTwiceIsSeen) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kDeliverTwice).violations.Count("flip"), 0U);
}

TEST(PlantedChaosFaults, ASnapshotReplacedWhileInUseIsSeen) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kEarlyPublish).violations.Count("outbox"), 0U);
}

TEST(PlantedChaosFaults, AWrongJobWideCountIsSeen) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kWrongCount).violations.Count("samples"), 0U);
}

TEST(PlantedChaosFaults, ADeliveredValueThatIsNotTheMeanOfItsSnapshotsIsS5) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kWrongValue).violations.Count("S5"), 0U);
}

ChaosReport JobThatCopiesInParts(ChaosPlant plant) {
  ChaosScenario scenario = OfFour(plant);
  scenario.fills = 1;
  return RunChaos(scenario);
}

TEST(PlantedChaosFaults, AValueThatIsSentBeforeTheTrainerHasCopiedItIsSeen) {
  const ChaosReport sound = JobThatCopiesInParts(ChaosPlant::kNone);
  EXPECT_TRUE(sound.violations.none()) << Broken(sound.violations);
  EXPECT_GT(sound.in_parts, 10U);
  EXPECT_GT(JobThatCopiesInParts(ChaosPlant::kSaysMore).violations.Count("S6"), 0U);
}

ChaosReport JobWithOuter(ChaosPlant plant) {
  ChaosScenario scenario = OfFour(plant);
  scenario.group_size = 2;
  scenario.outer = {.kind = worker::OuterKind::kNesterov, .learning_rate = 0.7, .momentum = 0.9};
  return RunChaos(scenario);
}

TEST(PlantedChaosFaults, AnOuterStepThatIsOffIsSeenAndSoIsAVelocityOfItsOwn) {
  const ChaosReport sound = JobWithOuter(ChaosPlant::kNone);
  EXPECT_TRUE(sound.violations.none()) << Broken(sound.violations);
  EXPECT_GT(sound.outer_steps, 10U);
  EXPECT_GT(JobWithOuter(ChaosPlant::kWrongStep).violations.Count("outer"), 0U);
  EXPECT_GT(JobWithOuter(ChaosPlant::kOwnVelocity).violations.Count("outer"), 0U);
}

ChaosReport JobWithOneRound(ChaosPlant plant) {
  ChaosScenario scenario = OfFour(plant);
  scenario.group_size = 2;
  scenario.one_round = true;
  scenario.mild = true;
  return RunChaos(scenario);
}

TEST(PlantedChaosFaults, AMeanOfAGroupWithoutTheOwnValuesIsSeenAndSoIsAWrongCountOfSamples) {
  const ChaosReport sound = JobWithOneRound(ChaosPlant::kNone);
  EXPECT_TRUE(sound.violations.none()) << Broken(sound.violations);
  EXPECT_GT(sound.group_means, 10U);
  EXPECT_GT(sound.counts, 10U);
  EXPECT_GT(JobWithOneRound(ChaosPlant::kWithoutOwn).violations.Count("own"), 0U);
  EXPECT_GT(JobWithOneRound(ChaosPlant::kWrongCount).violations.Count("samples"), 0U);
  EXPECT_GT(JobWithOneRound(ChaosPlant::kWrongValue).violations.Count("S5"), 0U);
}

ChaosReport JobWithChanges(ChaosPlant plant) {
  ChaosScenario scenario;
  scenario.members = 4;
  scenario.group_size = 4;
  scenario.wire = worker::WireFormat::kInt8;
  scenario.plant = plant;
  scenario.planted = 1;
  scenario.heal = Seconds(3);
  scenario.deadline = Seconds(10);
  return RunChaos(scenario);
}

TEST(PlantedChaosFaults, ABaseThatIsNotMovedByTheMeanChangeIsSeen) {
  const ChaosReport sound = JobWithChanges(ChaosPlant::kNone);
  EXPECT_TRUE(sound.violations.none()) << Broken(sound.violations);
  EXPECT_GT(sound.changes, 10U);
  const Violations broken = JobWithChanges(ChaosPlant::kWrongStep).violations;
  EXPECT_GT(broken.Count("outer"), 0U);
  EXPECT_GT(broken.Count("base"), 0U);
}

ChaosReport JobWithIst(ChaosPlant plant) {
  ChaosScenario scenario = OfFour(plant);
  DrawIst(scenario);
  return RunChaos(scenario);
}

TEST(PlantedChaosFaults, AModelThatDiffersFromThoseOfTheSameValueIsSeen) {
  const ChaosReport sound = JobWithIst(ChaosPlant::kNone);
  EXPECT_TRUE(sound.violations.none()) << Broken(sound.violations);
  EXPECT_GT(sound.subnet_rounds, 10U);
  EXPECT_GT(JobWithIst(ChaosPlant::kWrongStep).violations.Count("subnets"), 0U);
}

// Of jobs whose members die in the middle of rounds: what only they had, nobody covers.
TEST(PlantedChaosFaults, AValueThatMovesThoughNobodyCoveredItIsSeen) {
  uint64_t kept = 0;
  size_t seen = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ChaosScenario scenario = DrawChaos(seed, 3, 9);
    DrawIst(scenario);
    kept += RunChaos(scenario).subnet_kept;
    scenario.plant = ChaosPlant::kUncoveredMoves;
    const ChaosReport planted = RunChaos(scenario);
    for (const std::string& word : planted.violations.words())
      seen += word.find("nobody covered it") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(kept, 10U);
  EXPECT_GT(seen, 0U);
}

ChaosReport JobFromFirstParameters(ChaosPlant plant, int planted) {
  ChaosScenario scenario;
  scenario.members = 4;
  scenario.gives_first = true;
  scenario.mild = true;
  scenario.plant = plant;
  scenario.planted = planted;
  scenario.heal = Seconds(3);
  scenario.deadline = Seconds(10);
  scenario.joins = {Seconds(1)};
  return RunChaos(scenario);
}

TEST(PlantedChaosFaults, ATrainerThatStartsFromItsOwnParametersIsSeen) {
  const ChaosReport sound = JobFromFirstParameters(ChaosPlant::kNone, 0);
  EXPECT_TRUE(sound.violations.none()) << Broken(sound.violations);
  EXPECT_EQ(sound.first.given, 1U);
  EXPECT_EQ(sound.first.taken, 3U);
  EXPECT_EQ(sound.first.compared, 3U);
  // One of the four is the first member, and takes nobody's.
  int seen = 0;
  for (int planted = 0; planted < 4; ++planted)
    seen += JobFromFirstParameters(ChaosPlant::kKeepsOwn, planted).violations.Count("first") > 0;
  EXPECT_EQ(seen, 3);
}

TEST(PlantedChaosFaults, ASecondSuccessorOfAViewIsSeen) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kSecondView).violations.Count("view"), 0U);
}

TEST(PlantedChaosFaults, AnAgentThatNobodyHearsAfterHealingIsSeen) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kNeverTogether).violations.Count("healed"), 0U);
}

// Newcomers get seats in the view; a node that is never told of them goes on with a list of its
// own. That costs nobody a round: members with different lists do not wait for each other.
ChaosReport JobWithSeats(ChaosPlant plant, int planted) {
  ChaosScenario scenario = OfFour(plant, planted);
  scenario.mild = true;
  scenario.joins = {Seconds(1), Seconds(1.5)};
  return RunChaos(scenario);
}

TEST(PlantedChaosFaults, SeatsThatAreNotUnitedAreSeen) {
  const ChaosReport sound = JobWithSeats(ChaosPlant::kNone, 0);
  EXPECT_TRUE(sound.violations.none()) << Broken(sound.violations);
  uint64_t failed = 0, apart = 0;
  for (int planted = 0; planted < 4; ++planted) {
    const ChaosReport report = JobWithSeats(ChaosPlant::kSeatsNotUnited, planted);
    failed += report.violations.Count("L1");
    apart += report.violations.Count("healed");
  }
  EXPECT_EQ(failed, 0U);
  EXPECT_GT(apart, 0U);
}

// Nobody died, and one of four was stopped for longer than every deadline, somewhere in a round:
// what it kept is a round that failed.
TEST(PlantedChaosFaults, ASurvivorOfAMildJobThatKeepsItsValuesIsL1) {
  ChaosScenario scenario;
  scenario.members = 4;
  scenario.mild = true;
  scenario.speed_spread = 1;
  uint64_t seen = 0;
  for (int i = 0; i < 40; ++i) {
    scenario.freezes = {{Seconds(1) + Milliseconds(11) * i, Seconds(2.5), 0}};
    seen += RunChaos(scenario).violations.Count("L1");
  }
  EXPECT_GT(seen, 0U);
}

// L1 has a condition. Three of five, the first witness among them, die in the middle of a round.
TEST(PlantedChaosFaults, WithoutAQuorumL1PromisesNothing) {
  ChaosScenario scenario;
  scenario.members = 5;
  scenario.mild = true;
  for (int node = 0; node < 3; ++node)
    scenario.deaths.push_back({.node = node, .at = Seconds(1), .silent = true});
  const ChaosReport report = RunChaos(scenario);
  EXPECT_GT(report.kept + report.branches, 0U);
  EXPECT_EQ(report.violations.Count("L1"), 0U);
}

TEST(PlantedChaosFaults, BytesSentAgainAndAgainAreSeen) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kResendAll).violations.Count("resent"), 0U);
}

TEST(PlantedChaosFaults, AMessageThatDoesNotDecodeIsOutOfBounds) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kCutShort).violations.Count("bounds"), 0U);
}

TEST(PlantedChaosFaults, TimersThatPileUpAreOutOfBounds) {
  EXPECT_EQ(PlantedChaos(ChaosPlant::kTimersPile).violations.Count("bounds"), 1U);
}

}  // namespace
}  // namespace crowdsurf::simulator
