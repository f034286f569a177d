// Single rounds over links that take time for bytes: a round may be long, and one member slow.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/simulator/round_cases.h"

namespace crowdsurf::simulator {
namespace {

constexpr double kMegabit = 1e6 / 8;  // bytes a second

// Windows, chunks and deadlines as agents have them; each member reduces `chunks` of them.
RoundScenario Slow(int members, int chunks, double bytes_per_second) {
  RoundScenario scenario = Calm(members);
  scenario.elements = static_cast<uint32_t>(members * chunks);
  scenario.window_chunks = scenario.max_window_chunks = 8;
  scenario.chunk_bytes = size_t{128} << 10;
  scenario.pacing = worker::PacerConfig();
  scenario.deadline = Seconds(600);
  for (int node = 0; node < members; ++node)
    scenario.rates.push_back({Duration(), node, bytes_per_second});
  return scenario;
}

// Three agents, 5.9 M values, as bench/slow_network.py shapes them.
TEST(RoundRates, ARoundOfAMinuteIsCompleted) {
  for (const double megabits : {7.0, 15.0}) {
    const RoundScenario scenario = Slow(3, 60, megabits * kMegabit);
    const RoundReport report = AllApply(scenario, std::to_string(megabits) + " Mbit/s");
    EXPECT_GT(report.length, Seconds(300 / megabits)) << "it was no long round";
  }
}

TEST(RoundRates, OneSlowMemberCostsTheOthersNoRound) {
  for (const int slow : {0, 3}) {
    RoundScenario scenario = Slow(4, 40, 100 * kMegabit);
    scenario.rates[static_cast<size_t>(slow)].bytes_per_second /= 10;
    const RoundReport report = AllApply(scenario, "slow: " + std::to_string(slow));
    EXPECT_GT(report.length, Seconds(5)) << "it was not slow";
  }
}

TEST(RoundRates, ABandwidthThatFallsToAQuarterCostsNoRound) {
  for (const int whose : {0, 1, -1}) {  // -1: all of them
    RoundScenario scenario = Slow(4, 40, 40 * kMegabit);
    for (int node = 0; node < scenario.members; ++node)
      if (whose < 0 || node == whose) scenario.rates.push_back({Seconds(1), node, 10 * kMegabit});
    const RoundReport report = AllApply(scenario, "whose: " + std::to_string(whose));
    EXPECT_GT(report.length, Seconds(8)) << "it was not slow";
  }
}

}  // namespace
}  // namespace crowdsurf::simulator
