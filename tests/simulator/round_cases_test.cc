// The hand-written cases of one round (docs/round.md): who dies when, who is cut off, who
// lies. Deaths are placed after every single action of every member, which covers each point that
// the protocol's list names and all between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/simulator/round_cases.h"

namespace crowdsurf::simulator {
namespace {

using worker::Outcome;

int Living(const RoundReport& report, int members) {
  return static_cast<int>(std::count(report.alive.begin(), report.alive.begin() + members, true));
}

TEST(RoundCases, AFaultFreeRoundIsFastAndSendsEveryByteOnce) {
  for (int members = 2; members <= 8; ++members) {
    const RoundScenario scenario = Calm(members);
    const RoundReport report = AllApply(scenario, "calm");
    for (const auto& [node, over] : report.over) EXPECT_EQ(over.outcome, Outcome::kFast) << node;
    const uint64_t streams = scenario.elements * static_cast<uint64_t>(members - 1);
    EXPECT_EQ(report.input_sends, streams);
    EXPECT_EQ(report.result_sends, streams);
  }
}

TEST(RoundCases, WhoeverDiesAfterWhicheverActionTheOthersFinishWithTheSameBits) {
  int runs = 0;
  for (int members = 2; members <= 5; ++members) {
    const RoundReport calm = RunRound(Calm(members));
    for (int node = 0; node < members; ++node) {
      for (uint64_t k = 0; k <= calm.actions[static_cast<size_t>(node)]; ++k) {
        RoundScenario scenario = Calm(members);
        scenario.deaths = {{node, k}};
        AllApply(scenario, "node " + std::to_string(node) + " of " + std::to_string(members) +
                               " dies after action " + std::to_string(k));
        ++runs;
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(runs, 350);
}

TEST(RoundCases, ASilentDeathIsFoundByItsSilenceWhereverItHappens) {
  const RoundReport calm = RunRound(Calm(4));
  for (uint64_t k = 0; k <= calm.actions[1]; ++k) {
    RoundScenario scenario = Calm(4);
    scenario.heal = Seconds(3);
    scenario.detection = Duration::Infinite();
    scenario.deaths = {{1, k}};
    AllApply(scenario, "silent death after action " + std::to_string(k));
  }
}

// A busy machine, or a queue in the network: one frame in twenty is some 50 ms late, and those
// after it come with it, five times as late as is suspicious here. Nobody dies, so nobody may keep
// its own values: the ballots that members open against each other must not be used up.
TEST(RoundCases, FramesThatComeInBurstsDoNotUseUpTheBallots) {
  int repaired = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RoundScenario scenario = Calm(8, seed);
    scenario.links = {.min_delay = Milliseconds(1),
                      .mean_extra_delay = Microseconds(500),
                      .slow = 0.05,
                      .slow_factor = 100};
    scenario.heal = Seconds(30);
    const RoundReport report = AllApply(scenario, "seed " + std::to_string(seed));
    for (const auto& [node, over] : report.over) repaired += over.outcome == Outcome::kRepaired;
  }
  EXPECT_GT(repaired, 100) << "of 400: this hardly tested false suspicion";
}

TEST(RoundCases, WhicheverTwoDieAtWhicheverTwoActionsTheOthersFinishWithTheSameBits) {
  const RoundReport calm = RunRound(Calm(5));
  for (int a = 0; a < 5; ++a) {
    for (int b = a + 1; b < 5; ++b) {
      for (uint64_t i = 0; i <= calm.actions[static_cast<size_t>(a)]; i += 5) {
        // The second death comes at any point of the repair too: actions go on after the first.
        for (uint64_t j = static_cast<uint64_t>(a + b) % 7;
             j <= calm.actions[static_cast<size_t>(b)] + 40; j += 7) {
          RoundScenario scenario = Calm(5, 1 + i * 31 + j);
          scenario.deaths = {{a, i}, {b, j}};
          AllApply(scenario, "node " + std::to_string(a) + " after " + std::to_string(i) +
                                 ", node " + std::to_string(b) + " after " + std::to_string(j));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(RoundCases, AGroupMayLoseAllButOneWhileTheWitnessesLive) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    RoundScenario scenario = Calm(5, seed);
    scenario.outside_witnesses = 3;
    for (int node = 1; node < 5; ++node)
      scenario.deaths.push_back({node, (seed * 7 + static_cast<uint64_t>(node) * 13) % 60});
    AllApply(scenario, "seed " + std::to_string(seed));
  }
}

TEST(RoundCases, HalfOfTheGroupDiesAtOnceWithOrWithoutTheFirstWitness) {
  for (uint64_t k = 0; k < 60; ++k) {
    RoundScenario with = Calm(4, k);
    with.deaths = {{2, k}, {3, k}};  // W[0] lives: half of the witnesses are a quorum
    AllApply(with, "W[0] lives, k " + std::to_string(k));
    RoundScenario without = Calm(4, k);
    without.deaths = {{0, k}, {1, k}};  // W[0] dies: the survivors form a branch
    const RoundReport report = RunRound(without);
    EXPECT_TRUE(report.violations.none()) << "W[0] dies, k " << k << Words(report);
  }
}

TEST(RoundCases, AllWitnessesDieAndTheSurvivorsFinishInABranch) {
  for (uint64_t k = 0; k < 40; ++k) {
    RoundScenario scenario = Calm(4, k);
    scenario.outside_witnesses = 3;
    scenario.deaths = {{1, 10 + k}};
    for (int w = 4; w < 7; ++w) scenario.deaths.push_back({w, k % 4});
    const RoundReport report = RunRound(scenario);
    EXPECT_TRUE(report.violations.none()) << "k " << k << Words(report);
    EXPECT_GE(Living(report, 4), 3);
  }
}

TEST(RoundCases, OneWayCutLinksCostTimeAndNothingElse) {
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      if (from == to) continue;
      for (int64_t at = 0; at < 2'000; at += 250) {
        RoundScenario scenario = Calm(4);
        scenario.heal = Seconds(2);
        scenario.cuts = {{Microseconds(at), Seconds(1), from, to}};
        const RoundReport report = RunRound(scenario);
        EXPECT_TRUE(report.violations.none())
            << from << " to " << to << " at " << at << " us" << Words(report);
      }
    }
  }
}

TEST(RoundCases, AMemberFrozenLongerThanEveryDeadlineChangesNothingWhenItWakes) {
  for (int64_t at = 0; at < 3'000; at += 50) {
    RoundScenario scenario = Calm(4);
    scenario.heal = Seconds(5);
    scenario.freezes = {{Microseconds(at), Seconds(3), static_cast<int>(at / 50 % 4)}};
    const RoundReport report = RunRound(scenario);
    EXPECT_TRUE(report.violations.none()) << "frozen at " << at << " us" << Words(report);
  }
}

TEST(RoundCases, EveryMemberSuspectsSomebodyElseAndStillOneValueIsDecided) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RoundScenario scenario = Calm(4, seed);
    for (int node = 0; node < 4; ++node)
      scenario.suspicions.push_back({Microseconds(static_cast<int64_t>((seed * 37) % 2'000)),
                                     Milliseconds(50), node,
                                     (node + 1 + static_cast<int>(seed % 3)) % 4});
    AllApply(scenario, "seed " + std::to_string(seed));
  }
}

TEST(RoundCases, LateFramesOfOldBallotsChangeNothing) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RoundScenario scenario = Calm(4, seed);
    scenario.links.in_order = false;
    scenario.links.slow = 0.1;
    scenario.links.slow_factor = 500;  // many times a ballot
    scenario.links.duplicate = 0.2;
    scenario.deaths = {{static_cast<int>(seed % 4), 5 + seed % 40}};
    scenario.suspicions = {{Milliseconds(1), Milliseconds(20), 1, 2},
                           {Milliseconds(2), Milliseconds(20), 2, 3}};
    const RoundReport report = RunRound(scenario);
    EXPECT_TRUE(report.violations.none()) << "seed " << seed << Words(report);
  }
}

TEST(RoundCases, AHoleIsSpokenForEvenWhenASpeakerDiesInTheMiddleOfItsSlice) {
  for (uint64_t k = 0; k < 30; ++k) {
    RoundScenario scenario = Calm(4, k);
    scenario.holes = 2;
    scenario.speakers = 3;
    scenario.deaths = {{4, k}};
    const RoundReport report = AllApply(scenario, "speaker dies after " + std::to_string(k));
    for (const auto& [node, over] : report.over)
      EXPECT_EQ(over.contributors.bits() >> 4, 3U) << "holes in the mean, node " << node;
  }
}

TEST(RoundCases, AllWeightsZeroGiveThePlainMeanWithWeightZero) {
  RoundScenario scenario = Calm(4);
  scenario.zero_weights = true;
  const RoundReport report = AllApply(scenario, "zero weights");
  for (const auto& [node, over] : report.over) EXPECT_EQ(over.stake.weight, 0.0) << node;
}

TEST(RoundCases, AMemberWithNanIsLeftOutAndTheOthersFinish) {
  for (int liar = 0; liar < 4; ++liar) {
    RoundScenario scenario = Calm(4);
    scenario.plant = Plant::kLieNan;
    scenario.planted = liar;
    const RoundReport report = RunRound(scenario);
    EXPECT_TRUE(report.violations.none()) << Words(report);
    for (const auto& [node, over] : report.over)
      if (node != liar) {
        EXPECT_TRUE(worker::Applied(over.outcome)) << "node " << node << ", liar " << liar;
      }
  }
}

TEST(RoundCases, LiesOfOneMemberNeverMakeTheOthersApplyDifferentBits) {
  for (const Plant lie : {Plant::kLieWeights, Plant::kLieResults, Plant::kLieHaves}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      RoundScenario scenario = Calm(4, seed);
      scenario.plant = lie;
      scenario.planted = static_cast<int>(seed % 4);
      const RoundReport report = RunRound(scenario);
      EXPECT_EQ(report.violations.Count("S1"), 0U)
          << "lie " << static_cast<int>(lie) << " seed " << seed << Words(report);
      EXPECT_EQ(report.violations.Count("S3"), 0U) << Words(report);
    }
  }
}

TEST(RoundCases, OneDeathResendsNoMoreThanTheDeadOwnersPartAndTheAdoptedResults) {
  const int members = 5;
  const uint64_t chunks = 10, peers = members - 1;
  const uint64_t streams = chunks * peers;
  const RoundReport calm = RunRound(Calm(members));
  for (uint64_t k = 0; k <= calm.actions[2]; ++k) {
    RoundScenario scenario = Calm(members);
    scenario.deaths = {{2, k}};
    const RoundReport report = AllApply(scenario, "death after " + std::to_string(k));
    // Two chunks were the dead member's: its inputs go to new owners, and finished results of it
    // are served again.
    EXPECT_LE(report.input_sends, streams + 2 * peers) << k;
    EXPECT_LE(report.result_sends, streams + 2 * peers + chunks) << k;
  }
}

}  // namespace
}  // namespace crowdsurf::simulator
