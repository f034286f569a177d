// P6: jobs that draw leases and lose worker after worker: each sample is committed once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "simulator/chaos/chaos_scenario.h"

namespace crowdsurf::simulator {
namespace {

std::string Words(const Violations& violations) {
  std::string all;
  for (const auto& [statement, count] : violations.counts())
    all += statement + ":" + std::to_string(count) + " ";
  for (const std::string& word : violations.words()) all += "\n" + word;
  return all;
}

uint64_t Wanted(const char* variable, uint64_t otherwise) {
  const char* wanted = std::getenv(variable);
  return wanted == nullptr ? otherwise : std::strtoull(wanted, nullptr, 10);
}

// CROWDSURF_SEEDS and CROWDSURF_FIRST_SEED choose other jobs.
TEST(LeasesTest, EachSampleIsCommittedOnceThoughFiftyWorkersGo) {
  uint64_t epochs = 0;
  const uint64_t first = Wanted("CROWDSURF_FIRST_SEED", 1);
  const uint64_t seeds = Wanted("CROWDSURF_SEEDS", 20);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const ChaosReport report = RunChaos(DrawLeases(seed, 50));
    EXPECT_TRUE(report.violations.none())
        << "seed " << seed << ": " << Words(report.violations) << " branches " << report.branches;
    epochs += report.leases_epochs;
    RecordProperty("seed_" + std::to_string(seed),
                   std::to_string(report.leases_committed) + " committed, " +
                       std::to_string(report.leases_retrained) + " retrained, kept " +
                       std::to_string(report.kept));
  }
  EXPECT_GT(epochs, seeds);
}

ChaosReport Planted(ChaosPlant plant) {
  ChaosScenario scenario = DrawLeases(3, 8);
  scenario.plant = plant;
  scenario.planted = static_cast<int>(scenario.members - 1);
  // The planted node lives as long as the job.
  std::erase_if(scenario.deaths, [&](const auto& d) { return d.node == scenario.planted; });
  std::erase_if(scenario.leaves, [&](const auto& l) { return l.node == scenario.planted; });
  return RunChaos(scenario);
}

TEST(PlantedLeaseFaults, AJobWithoutOneIsGreen) {
  const ChaosReport report = Planted(ChaosPlant::kNone);
  EXPECT_TRUE(report.violations.none()) << Words(report.violations);
  EXPECT_GT(report.leases_committed, 0U);
}

TEST(PlantedLeaseFaults, ATrainerThatTrainsSamplesOfOthersIsSeen) {
  EXPECT_GT(Planted(ChaosPlant::kTrainsOn).violations.Count("lease"), 0U);
}

TEST(PlantedLeaseFaults, AClaimOfMoreThanWasTrainedIsSeen) {
  EXPECT_GT(Planted(ChaosPlant::kClaimsMore).violations.Count("lost"), 0U);
}

TEST(PlantedLeaseFaults, SamplesThatAreInAPartOfTheMeanAndCountAreSeen) {
  EXPECT_GT(Planted(ChaosPlant::kInPartOnly).violations.Count("lost"), 0U);
}

TEST(PlantedLeaseFaults, ALivingWorkersSamplesTrainedAgainAreSeen) {
  EXPECT_GT(Planted(ChaosPlant::kNewTrainer).violations.Count("retrained"), 0U);
}

TEST(PlantedLeaseFaults, AWorkerThatLeavesWithoutHandingInIsSeen) {
  EXPECT_GT(Planted(ChaosPlant::kLeavesAtOnce).violations.Count("notice"), 0U);
}

}  // namespace
}  // namespace crowdsurf::simulator
