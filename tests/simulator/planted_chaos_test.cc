// Every checker of whole jobs is turned red once, by a fault in the host of an agent.
#include <gtest/gtest.h>

#include <string>

#include "simulator/chaos_scenario.h"

namespace crowdsurf::simulator {
namespace {

std::string Broken(const Violations& violations) {
  std::string all;
  for (const auto& [statement, count] : violations.counts())
    all += statement + ":" + std::to_string(count) + " ";
  return all;
}

ChaosReport PlantedChaos(ChaosPlant plant) {
  ChaosScenario scenario;
  scenario.members = 4;
  scenario.plant = plant;
  scenario.planted = 1;
  scenario.heal = Seconds(3);
  scenario.deadline = Seconds(10);
  scenario.joins = {Seconds(1), Seconds(1.5), Seconds(2)};
  return RunChaos(scenario);
}

TEST(PlantedChaosFaults, AJobWithoutOneIsGreen) {
  const ChaosReport report = PlantedChaos(ChaosPlant::kNone);
  EXPECT_TRUE(report.violations.none()) << Broken(report.violations);
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

TEST(PlantedChaosFaults, ASecondSuccessorOfAViewIsSeen) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kSecondView).violations.Count("view"), 0U);
}

TEST(PlantedChaosFaults, AnAgentThatNobodyHearsAfterHealingIsSeen) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kNeverTogether).violations.Count("healed"), 0U);
}

TEST(PlantedChaosFaults, BytesSentAgainAndAgainAreSeen) {
  EXPECT_GT(PlantedChaos(ChaosPlant::kResendAll).violations.Count("resent"), 0U);
}

}  // namespace
}  // namespace crowdsurf::simulator
