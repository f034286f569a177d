// Every checker of whole jobs is turned red once, by a fault in the host of an agent.
#include <gtest/gtest.h>

#include <string>

#include "base/digest.h"
#include "simulator/chaos_scenario.h"
#include "simulator/round_checkers.h"
#include "worker/core/round_codec.h"

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

// Who may sit out (L3 of the protocol) is told from who may not: the members of the deciding
// ballot.
TEST(LeftOut, OnlyWhoIsNotInTheDecidingBallotOrUsesAnotherListIsLeftOut) {
  Violations violations;
  RoundCheckers checkers(violations);
  const PeerId witness(Sha256(AsBytes("witness")).bytes());
  const auto instance = [](uint8_t n) { return worker::InstanceId(std::array<uint8_t, 16>{n}); };
  const auto open = [&](int node, uint8_t n, int rank, worker::CellIndex group) {
    checkers.OnNamed(instance(n), {.view = {}, .averaging = 7, .round = 1, .group = group});
    checkers.OnOpen(node, instance(n), rank, 1.0, worker::WireFormat::kFloat32, {});
  };
  for (int node = 0; node < 3; ++node) open(node, 1, node, 0);
  open(3, 2, 0, 0);  // the same group in the same round, under another list
  open(4, 3, 0, 5);  // another group
  worker::HeldValue held;
  held.members = 0b011;
  held.value.abort = true;
  const Bytes value = worker::EncodeHeldValue(held);
  const auto say = [&](worker::FrameBody body) {
    checkers.OnWitnessFrame(0, witness, {instance(1), std::move(body)}, {witness});
  };
  say(worker::Accept{.ballot = 1, .age = {}, .value = value, .learners = {}});
  say(worker::Accepted{.ballot = 1, .value = Sha256(value)});
  checkers.OnUsed(0, instance(1), {});
  EXPECT_EQ(checkers.LeftOut(0), 0U);
  EXPECT_EQ(checkers.LeftOut(1), 0U);  // in the ballot, and did not use it: no excuse
  EXPECT_EQ(checkers.LeftOut(2), 1U);
  EXPECT_EQ(checkers.LeftOut(3), 1U);
  EXPECT_EQ(checkers.LeftOut(4), 0U);
}

}  // namespace
}  // namespace crowdsurf::simulator
