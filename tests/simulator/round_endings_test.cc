// How a round ends for whoever was not quite part of it: a trainer that gives its snapshot too
// late, a member that slept through everything, a liar's group, those whose witnesses are gone.
// Each case says what the protocol promises (docs/round.md), not only that nothing
// broke.
#include <map>
#include <set>
#include <string>

#include "tests/simulator/round_cases.h"

namespace crowdsurf::simulator {
namespace {

using Phase = worker::Round::Phase;
using worker::Outcome;

// The start deadline of the simulator's members is 20 ms: a snapshot well before it is in the mean,
// one well after it is not, and its member adopts what the others decided without it.
TEST(RoundEndings, ALateSnapshotIsInTheMeanOfAllOrOfNobodyAndItsMemberAdopts) {
  std::set<Outcome> seen;
  for (int late = 0; late < 4; ++late) {
    for (const int64_t after : {1, 5, 10, 19, 20, 21, 50, 300, 3'000, 9'000}) {
      RoundScenario scenario = Calm(4);
      scenario.late_snapshots = {{late, Milliseconds(after)}};
      const std::string what =
          "node " + std::to_string(late) + " late by " + std::to_string(after) + " ms";
      const RoundReport report = AllApply(scenario, what);
      OthersApplyTheSame(scenario, report, -1, what);
      ASSERT_EQ(report.over.size(), 4U) << what;
      const worker::RankSet mean = report.over.begin()->second.contributors;
      for (const auto& [node, over] : report.over) {
        EXPECT_EQ(over.contributors, mean) << what << ", node " << node;
        if (node != late) {
          EXPECT_NE(over.outcome, Outcome::kAdopted) << what << ": node " << node << " fell out";
        }
      }
      const bool in_the_mean = mean.Contains(late);
      EXPECT_TRUE(in_the_mean || after > 10) << what;
      EXPECT_FALSE(in_the_mean && after >= 50) << what;
      const Outcome own = report.over.at(late).outcome;
      EXPECT_EQ(own == Outcome::kAdopted, !in_the_mean) << what;
      seen.insert(own);
    }
  }
  EXPECT_EQ(seen, (std::set<Outcome>{Outcome::kFast, Outcome::kRepaired, Outcome::kAdopted}));
}

TEST(RoundEndings, AroundATwoFacedMemberTheHonestFinishWithEqualBits) {
  for (const Plant lie : {Plant::kLieNan, Plant::kLieWeights, Plant::kLieResults}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      RoundScenario scenario = Calm(4, seed);
      scenario.plant = lie;
      scenario.planted = static_cast<int>(seed % 4);
      OthersApplyTheSame(
          scenario, RunRound(scenario), scenario.planted,
          "lie " + std::to_string(static_cast<int>(lie)) + " seed " + std::to_string(seed));
    }
  }
}

// Section 9 lets it block the fast path. It lies in the others' ballots too, until they have none
// left; then they wait for its own. To keep their values all together were agreement as well. Never
// may some apply and some not. Mostly it gets equal HAVEs itself, applies, and answers the first
// ballot with DECIDED.
TEST(RoundEndings, WhoLiesInItsHavesMakesTheHonestApplyTheSameOrAllKeep) {
  int applied = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RoundScenario scenario = Calm(4, seed);
    scenario.plant = Plant::kLieHaves;
    scenario.planted = static_cast<int>(seed % 4);
    const RoundReport report = RunRound(scenario);
    const int honest = scenario.planted == 0 ? 1 : 0;
    if (HasApplied(report, honest)) {
      OthersApplyTheSame(scenario, report, scenario.planted, "seed " + std::to_string(seed));
      ++applied;
      continue;
    }
    for (const auto& [node, over] : report.over)
      if (node != scenario.planted) {
        EXPECT_EQ(over.outcome, Outcome::kKept) << "seed " << seed << " node " << node;
      }
  }
  EXPECT_EQ(applied, 40) << "the liar says what was decided, or decides it in its own ballot";
}

// One member sleeps from each instant of the round on, with and without a death beside it.
// Returns how each sleeper ended, by the state it slept in (-1: it had not opened the round).
std::map<int, std::set<Outcome>> SleepersEnds(Duration sleep) {
  std::map<int, std::set<Outcome>> ends;
  for (const bool death : {false, true}) {
    for (int sleeper = 0; sleeper < 5; ++sleeper) {
      for (int64_t at = 0; at < 6'000; at += 100) {
        RoundScenario scenario = Calm(5);
        scenario.heal = sleep + Seconds(2);
        scenario.freezes = {{Microseconds(at), sleep, sleeper}};
        if (death) scenario.deaths = {{(sleeper + 1) % 5, 15}};
        const std::string what = "node " + std::to_string(sleeper) + " sleeps at " +
                                 std::to_string(at) + " us" + (death ? ", one dies" : "");
        const RoundReport report = RunRound(scenario);
        EXPECT_TRUE(report.violations.none()) << what << Words(report);
        const bool applied = HasApplied(report, sleeper);
        OthersApplyTheSame(scenario, report, applied ? -1 : sleeper, what);
        const auto in = report.frozen_in.find(sleeper);
        const auto over = report.over.find(sleeper);
        if (over == report.over.end()) continue;  // a violation of L1, reported above
        ends[in == report.frozen_in.end() ? -1 : static_cast<int>(in->second)].insert(
            over->second.outcome);
      }
    }
  }
  for (const Phase phase :
       {Phase::kGathering, Phase::kReducing, Phase::kHeld, Phase::kBallot, Phase::kOver})
    EXPECT_TRUE(ends.contains(static_cast<int>(phase))) << static_cast<int>(phase) << " not slept";
  EXPECT_TRUE(ends.contains(-1)) << "nobody slept before it opened the round";
  return ends;
}

TEST(RoundEndings, WhoSleepsShorterThanTheSitOutWakesInAnyStateAndApplies) {
  for (const auto& [phase, outcomes] : SleepersEnds(Seconds(1)))
    for (const Outcome outcome : outcomes)
      EXPECT_TRUE(worker::Applied(outcome)) << "slept in state " << phase;
}

// L3: it adopts what reaches it. Its own sleep is no pause of the round, so it gives nothing up
// when it wakes after every deadline (8 s here).
TEST(RoundEndings, WhoSleepsLongerThanEveryDeadlineAdoptsWhenItWakes) {
  const auto ends = SleepersEnds(Seconds(10));
  for (const auto& [phase, outcomes] : ends)
    for (const Outcome outcome : outcomes)
      EXPECT_TRUE(worker::Applied(outcome)) << "slept in " << phase;
  EXPECT_EQ(ends.at(-1), std::set<Outcome>{Outcome::kAdopted});
}

// The living all applied the same bits; and of one branch are all of them or nobody. Returns
// whether they formed one.
bool EndsTogether(const RoundScenario& scenario, const std::string& what) {
  const RoundReport report = AllApply(scenario, what);
  OthersApplyTheSame(scenario, report, -1, what);
  std::set<worker::Ballot> branches;
  for (int node = 0; node < scenario.members; ++node) {
    if (!report.alive[static_cast<size_t>(node)]) continue;
    const auto in = report.branch.find(node);
    branches.insert(in == report.branch.end() ? 0 : in->second);
  }
  EXPECT_EQ(branches.size(), 1U) << what << ": the living are in different branches";
  return branches != std::set<worker::Ballot>{0};
}

TEST(RoundEndings, WithoutTheFirstWitnessAndHalfOfThemTheLivingEndInOneBranchWithOneValue) {
  int branches = 0;
  for (uint64_t k = 0; k < 60; ++k) {
    RoundScenario scenario = Calm(4, k);
    scenario.deaths = {{0, k}, {1, k}};
    branches += EndsTogether(scenario, "W[0] and half of W die, k " + std::to_string(k)) ? 1 : 0;
  }
  EXPECT_GE(branches, 20) << "of 60: this hardly tested branches";
}

TEST(RoundEndings, WithoutAnyWitnessTheLivingEndInOneBranchWithOneValue) {
  int branches = 0;
  for (uint64_t k = 0; k < 40; ++k) {
    RoundScenario scenario = Calm(4, k);
    scenario.outside_witnesses = 3;
    scenario.deaths = {{static_cast<int>(k % 4), 1 + k / 2}};
    for (int w = 4; w < 7; ++w) scenario.deaths.push_back({w, 0});
    branches += EndsTogether(scenario, "all of W dies, k " + std::to_string(k)) ? 1 : 0;
  }
  EXPECT_GE(branches, 20) << "of 40: this hardly tested branches";
}

// L1 and S1 at every pair of points that two members can die at, the repair of the first included.
TEST(RoundEndings, WhicheverTwoOfThreeOrFourDieAtWhicheverPairOfActionsTheOthersApplyTheSame) {
  for (const int members : {3, 4}) {
    RoundScenario base = Calm(members);
    base.outside_witnesses = 3;
    const RoundReport calm = RunRound(base);
    for (int a = 0; a < members; ++a) {
      for (int b = a + 1; b < members; ++b) {
        for (uint64_t i = 0; i <= calm.actions[static_cast<size_t>(a)]; ++i) {
          for (uint64_t j = 0; j <= calm.actions[static_cast<size_t>(b)] + 20; ++j) {
            RoundScenario scenario = base;
            scenario.deaths = {{a, i}, {b, j}};
            const std::string what = std::to_string(a) + " of " + std::to_string(members) +
                                     " after " + std::to_string(i) + ", " + std::to_string(b) +
                                     " after " + std::to_string(j);
            OthersApplyTheSame(scenario, AllApply(scenario, what), -1, what);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace crowdsurf::simulator
