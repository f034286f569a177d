// Jobs with strategies on graphs under faults drawn from seeds, and faults of their hosts that turn
// each of their checkers red.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "simulator/chaos/chaos_command.h"

namespace crowdsurf::simulator {
namespace {

class MixingChaos : public testing::TestWithParam<std::string_view> {};

TEST_P(MixingChaos, NoStatementIsBroken) {
  MixingTotals all;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    ChaosScenario scenario = DrawChaos(seed, 3, 9);
    ASSERT_TRUE(DrawGraph(GetParam(), scenario));
    const ChaosReport report = RunChaos(scenario);
    EXPECT_TRUE(report.violations.none()) << seed << ": " << report.violations.words().front();
    all.results += report.mixing.results;
    all.counted += report.mixing.counted;
    all.exchanges += report.mixing.exchanges;
  }
  EXPECT_GT(all.results, 2'000U);
  EXPECT_GT(all.counted, 200U);
  const bool compared = GetParam() == "A2CiD2" || GetParam() == "PowerGossip";
  if (compared) {
    EXPECT_GT(all.exchanges, 2'000U);
  }
}

TEST_P(MixingChaos, TwoRunsOfASeedAreOne) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    ChaosScenario scenario = DrawChaos(seed, 3, 9);
    DrawGraph(GetParam(), scenario);
    EXPECT_EQ(RunChaos(scenario).trace, RunChaos(scenario).trace) << seed;
  }
}

// The deciders of a view die, and one member hears of it in a round of the view before, in which it
// is alone. Each such round lasts longer than one hold of the next.
TEST(MixingChaosSeeds, AViewIsEnteredThoughEveryRoundBeforeItIsGivenUp) {
  ChaosScenario scenario = DrawChaos(1289, 3, 9);
  ASSERT_TRUE(DrawGraph("RelaySum", scenario));
  const ChaosReport report = RunChaos(scenario);
  EXPECT_TRUE(report.violations.none()) << report.violations.words().front();
}

INSTANTIATE_TEST_SUITE_P(All, MixingChaos, testing::ValuesIn(kGraphStrategies),
                         [](const auto& one) { return std::string(one.param); });

// What is drawn has both modes of Gossip, and jobs that are switched to Moshpit and from it.
TEST(MixingChaosDraw, HasSwitchesBothWaysAndManyGraphs) {
  int to_graph = 0, from_graph = 0, pairs = 0;
  std::set<worker::GraphKind> graphs;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    ChaosScenario scenario = DrawChaos(seed, 3, 9);
    ASSERT_TRUE(DrawGraph("Gossip", scenario));
    const GraphJob& job = *scenario.graph;
    to_graph += !job.begins && !job.switches.empty();
    from_graph += job.begins && !job.switches.empty();
    pairs += job.config.mixing.gossip == worker::GossipMode::kPairs;
    graphs.insert(job.config.mixing.graph);
  }
  EXPECT_GT(to_graph, 5);
  EXPECT_GT(from_graph, 5);
  EXPECT_GT(pairs, 15);
  EXPECT_LT(pairs, 45);
  EXPECT_GE(graphs.size(), 8U);
  ChaosScenario scenario;
  EXPECT_FALSE(DrawGraph("Moshpit", scenario));
  EXPECT_FALSE(scenario.graph);
}

// ---- planted faults ----------------------------------------------------------------------------

// Four workers whose neighbours mix, one of which has the fault.
Violations Planted(worker::AveragingConfig config, ChaosPlant plant) {
  ChaosScenario scenario;
  scenario.members = 4;
  scenario.plant = plant;
  scenario.planted = 1;
  scenario.interval_steps = 2;
  scenario.heal = Seconds(5);
  scenario.deadline = Seconds(10);
  scenario.graph = GraphJob{.config = config};
  if (config.strategy == worker::StrategyKind::kPowerGossip) {
    scenario.trainer.elements = 27;
    scenario.graph->tensors = {{0, {5, 5}}, {25, {2, 1}}};
  }
  return RunChaos(scenario).violations;
}

worker::AveragingConfig ConfigOf(worker::StrategyKind strategy, worker::GraphKind graph) {
  worker::AveragingConfig config;
  config.strategy = strategy;
  config.mixing.graph = graph;
  config.compression = worker::WireFormat::kFloat32;
  return config;
}

worker::AveragingConfig Pairs() {
  return ConfigOf(worker::StrategyKind::kGossip, worker::GraphKind::kRing);
}

worker::AveragingConfig Acid() {
  return ConfigOf(worker::StrategyKind::kA2CiD2, worker::GraphKind::kRing);
}

worker::AveragingConfig Relay() {
  return ConfigOf(worker::StrategyKind::kRelaySum, worker::GraphKind::kChain);
}

worker::AveragingConfig Power() {
  return ConfigOf(worker::StrategyKind::kPowerGossip, worker::GraphKind::kRing);
}

TEST(PlantedMixingFaults, JobsWithoutOneAreGreen) {
  for (const auto& config : {Pairs(), Acid(), Relay(), Power()}) {
    const Violations violations = Planted(config, ChaosPlant::kNone);
    EXPECT_TRUE(violations.none()) << violations.words().front();
  }
}

TEST(PlantedMixingFaults, AnEndThatDoesNotMoveIsMass) {
  EXPECT_GT(Planted(Pairs(), ChaosPlant::kMovesAlone).Count("mass"), 0U);
  EXPECT_GT(Planted(Acid(), ChaosPlant::kMovesAlone).Count("mass"), 0U);
}

TEST(PlantedMixingFaults, AnEndThatMovesTwiceIsMass) {
  EXPECT_GT(Planted(Pairs(), ChaosPlant::kMovesTwice).Count("mass"), 0U);
  EXPECT_GT(Planted(Acid(), ChaosPlant::kMovesTwice).Count("mass"), 0U);
}

TEST(PlantedMixingFaults, AStepByOtherFramesThanTheOtherEndsIsMass) {
  EXPECT_GT(Planted(Power(), ChaosPlant::kOtherFrames).Count("mass"), 0U);
}

TEST(PlantedMixingFaults, AResultBeyondAllModelsIsHull) {
  EXPECT_GT(Planted(Relay(), ChaosPlant::kBeyondAll).Count("hull"), 0U);
  worker::AveragingConfig neighbours = Pairs();
  neighbours.mixing.gossip = worker::GossipMode::kNeighbours;
  EXPECT_GT(Planted(neighbours, ChaosPlant::kBeyondAll).Count("hull"), 0U);
}

TEST(PlantedMixingFaults, ANaNThatATrainerIsGivenIsFinite) {
  for (const auto& config : {Pairs(), Acid(), Relay(), Power()})
    EXPECT_GT(Planted(config, ChaosPlant::kMakesNaN).Count("finite"), 0U);
}

TEST(PlantedMixingFaults, ACountOfMoreThanWasTrainedIsSamples) {
  EXPECT_GT(Planted(Relay(), ChaosPlant::kWrongCount).Count("samples"), 0U);
}

// Its new trainer says that it has trained what the one before had, which is counted already.
TEST(PlantedMixingFaults, SamplesOfATrainerThatAreCountedAgainAreTwice) {
  EXPECT_GT(Planted(Relay(), ChaosPlant::kNewTrainer).Count("twice"), 0U);
}

TEST(PlantedMixingFaults, AWorkerThatIsGivenNothingIsNotHealed) {
  for (const auto& config : {Pairs(), Acid(), Relay(), Power()})
    EXPECT_GT(Planted(config, ChaosPlant::kKeepsResults).Count("healed"), 0U);
}

TEST(PlantedMixingFaults, AWorkerThatNobodyHearsIsNotHealed) {
  EXPECT_GT(Planted(Relay(), ChaosPlant::kNeverTogether).Count("healed"), 0U);
}

TEST(MixingChaosCommand, AStrategyThatIsNone) {
  ChaosCommand command;
  command.strategy = "Moshpit";
  std::string output;
  EXPECT_EQ(RunSimulateChaos(command, output), 2);
  EXPECT_NE(output.find("--strategy"), std::string::npos);
}

}  // namespace
}  // namespace crowdsurf::simulator
