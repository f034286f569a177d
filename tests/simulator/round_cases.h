// What the tests of one round share: the calm group that every hand-written case starts from, the
// questions that most of them ask of a report, and the run of many drawn seeds.
//
// Test support, header only; a scenario is a value, so every case changes its own copy.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "simulator/engine/seeds.h"
#include "simulator/round/round_scenario.h"

namespace crowdsurf::simulator {

// Nothing goes wrong: two chunks of one element for each member, faults healed after 400 ms.
inline RoundScenario Calm(int members, uint64_t seed = 1) {
  RoundScenario scenario;
  scenario.seed = seed;
  scenario.members = members;
  scenario.elements = static_cast<uint32_t>(2 * members);
  scenario.chunk_elements = 1;
  scenario.heal = Milliseconds(400);
  return scenario;
}

inline std::string Words(const RoundReport& report) {
  std::string words;
  for (const std::string& word : report.violations.words()) words += "\n  " + word;
  return words;
}

inline bool HasApplied(const RoundReport& report, int node) {
  const auto over = report.over.find(node);
  return over != report.over.end() && worker::Applied(over->second.outcome);
}

// Every living member but `apart` (-1: nobody is) must have applied, all of them the same bits.
// The bits are compared here, from the output slots, and not taken from the world's checkers.
inline void OthersApplyTheSame(const RoundScenario& scenario, const RoundReport& report, int apart,
                               const std::string& what) {
  std::set<std::vector<Bytes>> bits;
  for (int node = 0; node < scenario.members; ++node) {
    if (node == apart || !report.alive[static_cast<size_t>(node)]) continue;
    EXPECT_TRUE(HasApplied(report, node)) << what << ": node " << node << " did not apply";
    if (HasApplied(report, node)) bits.insert(report.bits.at(node));
  }
  EXPECT_EQ(bits.size(), 1U) << what << ": the living have different bits";
}

// Runs it; nothing may be broken and every living member must have applied.
inline RoundReport AllApply(const RoundScenario& scenario, const std::string& what) {
  RoundReport report = RunRound(scenario);
  EXPECT_TRUE(report.violations.none()) << what << Words(report);
  for (int node = 0; node < scenario.members; ++node)
    if (report.alive[static_cast<size_t>(node)]) {
      EXPECT_TRUE(HasApplied(report, node)) << what << ": node " << node << " did not apply";
    }
  return report;
}

// How many members ended so, over all seeds.
struct Ends {
  uint64_t repaired = 0;
  uint64_t adopted = 0;
};
// Runs scenario_of(seed) of the first `seeds` seeds, two at a time; no statement may be broken.
template <class ScenarioOf>
Ends NothingIsBroken(uint64_t seeds, const ScenarioOf& scenario_of) {
  const auto reports = ForEachSeed<RoundReport>(
      0, seeds, 2, [&](uint64_t seed) { return RunRound(scenario_of(seed)); });
  Ends ends;
  for (uint64_t seed = 0; seed < reports.size(); ++seed) {
    EXPECT_TRUE(reports[seed].violations.none()) << "seed " << seed << Words(reports[seed]);
    for (const auto& [node, over] : reports[seed].over) {
      ends.repaired += over.outcome == worker::Outcome::kRepaired ? 1 : 0;
      ends.adopted += over.outcome == worker::Outcome::kAdopted ? 1 : 0;
    }
  }
  return ends;
}

}  // namespace crowdsurf::simulator
