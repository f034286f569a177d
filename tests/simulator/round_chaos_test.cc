// Single groups under faults drawn from seeds, and the proof that a seed is a replay.
#include <gtest/gtest.h>

#include "tests/simulator/round_cases.h"

namespace crowdsurf::simulator {
namespace {

TEST(RoundChaos, NoStatementIsBrokenInAnyOfTwoThousandSeeds) {
  const Ends ends = NothingIsBroken(2'000, DrawScenario);
  EXPECT_GT(ends.repaired, 1'000U) << "the faults are too mild to say anything";
  EXPECT_GT(ends.adopted, 100U);
}

// It was suspected anew whenever it was heard, so its every OPEN was answered by another ballot,
// until all were spent.
TEST(RoundChaos, AMemberWhoseReadyWasLostIsNotSuspectedForEver) {
  const RoundReport report = RunRound(DrawScenario(22'794));
  EXPECT_TRUE(report.violations.none()) << report.violations.words().front();
}

// A member that had been frozen served its chunk, but its READY came between STATUS and PLAN and it
// died: the survivors held a result whose weight nobody knew, plan after plan.
TEST(RoundChaos, AResultWhoseWeightNobodyKnowsIsReducedAgain) {
  const RoundReport report = RunRound(DrawScenario(5'827));
  EXPECT_TRUE(report.violations.none()) << report.violations.words().front();
}

// Members on thin links asked for all results again with each ballot. The answers queued up, and
// what members said of themselves waited behind them, until some gave up.
TEST(RoundChaos, ThinLinksAreNotFilledWithResultsThatAreOnTheirWay) {
  for (const uint64_t seed : {7'979ULL, 9'416ULL, 7'310'272ULL}) {
    const RoundReport report = RunRound(DrawScenario(seed));
    EXPECT_TRUE(report.violations.none()) << seed << Words(report);
  }
}

TEST(RoundChaos, TwoRunsOfASeedAreTheSameToTheLastByte) {
  uint64_t last = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const RoundReport first = RunRound(DrawScenario(seed));
    const RoundReport second = RunRound(DrawScenario(seed));
    EXPECT_EQ(first.trace, second.trace) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_NE(first.trace, last) << "another seed, the same run";
    last = first.trace;
  }
}

}  // namespace
}  // namespace crowdsurf::simulator
