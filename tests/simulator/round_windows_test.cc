// Windows of several chunks while one member dies and another one is late: who sends what first.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/simulator/round_cases.h"

namespace crowdsurf::simulator {
namespace {

// The others had the window of an owner full of its own chunks, and waited for the late one. That
// one began with the dead one's chunks, which a plan had given to the owner. Nobody moved, ballot
// after ballot, until all were spent.
TEST(RoundWindows, ADeathAndALateMemberNeedNoMoreThanATurnOfBallots) {
  constexpr int kMembers = 4;
  for (const int late : {6, 10, 14}) {
    for (uint64_t dies = 20; dies <= 860; dies += 120) {
      RoundScenario scenario = Calm(kMembers);
      scenario.elements = kMembers * 200;
      scenario.window_chunks = scenario.max_window_chunks = 8;
      scenario.deaths = {{0, dies}};
      scenario.late_snapshots = {{1, Milliseconds(late)}};
      scenario.heal = Milliseconds(30);  // suspicion is accurate from then on
      scenario.strict = true;
      const std::string what =
          "late by " + std::to_string(late) + " ms, dies after " + std::to_string(dies);
      const RoundReport report = AllApply(scenario, what);
      for (const auto& [node, over] : report.over) EXPECT_LE(over.ballot, kMembers) << what;
    }
  }
}

}  // namespace
}  // namespace crowdsurf::simulator
