// Every checker is turned red once: a fault is put into the host of an agent, never into the code
// under test, and the statement it breaks must be named.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "simulator/round/round_checkers.h"
#include "simulator/round/round_scenario.h"

namespace crowdsurf::simulator {
namespace {

std::string Broken(const Violations& violations) {
  std::string all;
  for (const auto& [statement, count] : violations.counts())
    all += statement + ":" + std::to_string(count) + " ";
  return all;
}

RoundReport Planted(Plant plant, uint64_t seed = 1) {
  RoundScenario scenario;
  scenario.seed = seed;
  scenario.members = 4;
  scenario.elements = 8;
  scenario.plant = plant;
  scenario.planted = 1;
  scenario.heal = Milliseconds(300);
  scenario.deadline = Seconds(5);
  if (plant == Plant::kTwiceInside) {
    scenario.holes = 1;
    scenario.speakers = 2;
    scenario.planted = 0;
  }
  return RunRound(scenario);
}

TEST(PlantedFaults, WithoutOneNothingIsRed) {
  const RoundReport report = Planted(Plant::kNone);
  EXPECT_TRUE(report.violations.none()) << Broken(report.violations);
}

TEST(PlantedFaults, AFlippedBitOfAnOutputIsS1) {
  EXPECT_GT(Planted(Plant::kCorruptOutput).violations.Count("S1"), 0U);
}

TEST(PlantedFaults, AResultThatIsTakenButNotWrittenIsS2) {
  EXPECT_GT(Planted(Plant::kSkippedStore).violations.Count("S2"), 0U);
}

TEST(PlantedFaults, AFoldWithOtherBitsIsS5) {
  EXPECT_GT(Planted(Plant::kFusedFold).violations.Count("S5"), 0U);
}

TEST(PlantedFaults, ForeignBytesInASumAreS6) {
  EXPECT_GT(Planted(Plant::kForeignInput).violations.Count("S6"), 0U);
}

TEST(PlantedFaults, ASnapshotThatIsInASumTwiceIsSeen) {
  EXPECT_GT(Planted(Plant::kTwiceInside).violations.Count("twice"), 0U);
}

// Told that all others have what it has, a member applies at once: then somebody else does not
// hold it (S4), and when it is cut off at the right time the others decide otherwise (S3, S1).
TEST(PlantedFaults, ApplyingBeforeEverybodyHasItIsS4AndInTimeS3AndS1) {
  std::set<std::string> broken;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RoundScenario scenario;
    scenario.seed = seed;
    scenario.members = 3;
    scenario.elements = 6;
    scenario.plant = Plant::kForgedHaves;
    scenario.planted = 1;
    // From some time on nobody hears it, though it hears all.
    const Duration from = Microseconds(static_cast<int64_t>(seed) * 10);
    scenario.cuts = {{from, Seconds(1), 1, 0}, {from, Seconds(1), 1, 2}};
    scenario.heal = Milliseconds(500);
    scenario.deadline = Seconds(5);
    const RoundReport report = RunRound(scenario);
    for (const auto& [statement, count] : report.violations.counts()) broken.insert(statement);
  }
  EXPECT_TRUE(broken.contains("S4"));
  EXPECT_TRUE(broken.contains("S3"));
  EXPECT_TRUE(broken.contains("S1"));
}

TEST(PlantedFaults, AMemberWhoseDeadlinesNeverFireAndWhoHearsNothingBreaksL1) {
  RoundScenario scenario;
  scenario.members = 3;
  scenario.plant = Plant::kDeafTimer;
  scenario.planted = 1;
  scenario.links.loss = 1;  // until it heals: nobody has anything to answer to then
  scenario.heal = Seconds(30);
  scenario.deadline = Seconds(5);
  EXPECT_GT(RunRound(scenario).violations.Count("L1"), 0U);
}

TEST(PlantedFaults, OneInstanceInTwoViewsIsS7) {
  Violations violations;
  RoundCheckers checkers(violations);
  worker::InstanceId instance;
  checkers.OnOpen(1, instance, {.rank = 0, .weight = 1.0});
  checkers.OnOpen(2, instance, {.rank = 0, .weight = 1.0});
  EXPECT_EQ(violations.Count("S7"), 1U);
}

// Two members fold the same chunk, each of its own input alone. The second one's has `span`.
Violations TwoFolds(bool subnet, const worker::ChunkSpan& span) {
  Violations violations;
  RoundCheckers checkers(violations);
  const worker::InstanceId instance;
  const auto open_and_fold = [&](int node, const Bytes& input, const worker::ChunkSpan& of) {
    checkers.OnOpen(node, instance, {.rank = node, .weight = 1, .inputs = {Parcel{input, {}}}});
    FoldReport report;
    report.fold.mask = worker::RankSet::Of(node);
    report.fold.weights = {1, 1};
    report.used = {{node, input}};
    report.span = of;
    report.subnet = subnet;
    report.result = input;
    checkers.OnFold(node, instance, report);
  };
  open_and_fold(0, {0, 0, 0x80, 0x3f}, {.owner = 0, .begin = 0, .count = 1});  // 1 as float32
  EXPECT_TRUE(violations.none()) << Broken(violations);
  open_and_fold(1, {0, 0, 0, 0x40}, span);  // 2
  return violations;
}

// A member whose base is behind has other chunks than the rest. What it folds nobody uses.
TEST(PlantedFaults, TwoMasksOfASpanAreS5AndOfSubNetworksThoseOfTwoSpansAreNone) {
  const worker::ChunkSpan same{.owner = 0, .begin = 0, .count = 1};
  const worker::ChunkSpan other{.owner = 1, .begin = 4, .count = 1};
  EXPECT_EQ(TwoFolds(true, same).Count("S5"), 1U);
  EXPECT_TRUE(TwoFolds(true, other).none()) << Broken(TwoFolds(true, other));
  EXPECT_EQ(TwoFolds(false, same).Count("S5"), 1U);
  EXPECT_EQ(TwoFolds(false, other).Count("S5"), 1U) << "without sub-networks all have one plan";
}

}  // namespace
}  // namespace crowdsurf::simulator
