#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/model/world/explorer.h"

namespace crowdsurf::worker::testing {
namespace {

int Wanted(const char* variable, int usual) {
  const char* wanted = std::getenv(variable);
  return wanted != nullptr ? std::atoi(wanted) : usual;
}

// Names the members that die or come late, where the options choose them.
std::string RolesOf(const ModelOptions& options) {
  std::string text;
  if (options.victim >= 0) absl::StrAppend(&text, ", only ", options.victim, " dies");
  if (options.late_member >= 0) absl::StrAppend(&text, ", ", options.late_member, " is late");
  if (options.late_until_death) absl::StrAppend(&text, " until a death");
  if (!options.mistakes) absl::StrAppend(&text, ", no others are suspected");
  return text;
}

void Print(const ModelOptions& options, const ModelReport& report) {
  printf(
      "%d members, %d chunks (first owner %d of %d), window %u, %d ballots, %d crashes, %d "
      "suspicions%s%s%s: %s%s; "
      "states %lu, steps %lu, healed %lu, orphans %lu, quorum lost %lu, local nodes %zu, messages "
      "%zu\n",
      options.members, options.chunks, options.first_owner,
      options.owners > 0 ? options.owners : options.members, options.window, options.ballots,
      options.crashes, options.suspicions, options.late ? ", late" : "",
      options.ready ? ", ready" : "", RolesOf(options).c_str(),
      report.exhaustive ? "exhaustive" : "stopped ", report.violation.c_str(),
      static_cast<unsigned long>(report.states), static_cast<unsigned long>(report.steps),
      static_cast<unsigned long>(report.healed), static_cast<unsigned long>(report.orphans),
      static_cast<unsigned long>(report.quorum_lost), report.nodes, report.messages);
  fflush(stdout);
}

// Explores all states, prints the report, and expects that none breaks a statement.
ModelReport ExploreWhole(const ModelOptions& options) {
  const ModelReport report = Explorer(options).Explore();
  Print(options, report);
  EXPECT_EQ(report.violation, "");
  EXPECT_TRUE(report.exhaustive);
  return report;
}

// CROWDSURF_MODEL_{MEMBERS,CHUNKS,OWNER,OWNERS,WINDOW,BALLOTS,CRASHES,VICTIM,LATE_MEMBER,STATES},
// ..._{LATE_UNTIL_DEATH,SUSPICIONS,MISTAKES,READY,LATE,LAZY} choose larger configurations, or other
// ones.
TEST(RoundModelTest, EveryInterleavingOfThreeMembersKeepsTheStatements) {
  ModelOptions options;
  options.members = Wanted("CROWDSURF_MODEL_MEMBERS", 3);
  options.chunks = Wanted("CROWDSURF_MODEL_CHUNKS", 1);
  options.first_owner = Wanted("CROWDSURF_MODEL_OWNER", 0);
  options.owners = Wanted("CROWDSURF_MODEL_OWNERS", 0);
  options.window = static_cast<uint32_t>(Wanted("CROWDSURF_MODEL_WINDOW", 0));
  options.late_member = Wanted("CROWDSURF_MODEL_LATE_MEMBER", -1);
  options.ballots = Wanted("CROWDSURF_MODEL_BALLOTS", 1);
  options.crashes = Wanted("CROWDSURF_MODEL_CRASHES", 2);
  options.victim = Wanted("CROWDSURF_MODEL_VICTIM", -1);
  options.late_until_death = Wanted("CROWDSURF_MODEL_LATE_UNTIL_DEATH", 0) != 0;
  options.suspicions = Wanted("CROWDSURF_MODEL_SUSPICIONS", 6);
  options.mistakes = Wanted("CROWDSURF_MODEL_MISTAKES", 1) != 0;
  options.ready = Wanted("CROWDSURF_MODEL_READY", 0) != 0;
  options.late = Wanted("CROWDSURF_MODEL_LATE", 1) != 0;
  options.lazy = Wanted("CROWDSURF_MODEL_LAZY", 1) != 0;
  options.max_states = static_cast<uint64_t>(Wanted("CROWDSURF_MODEL_STATES", 100'000'000));
  const ModelReport report = ExploreWhole(options);
  EXPECT_GT(report.healed, 0U);
}

TEST(RoundModelTest, TheOwnerOfTheChunkNeedNotBeTheCoordinator) {
  for (const int owner : {1, 2}) {
    ModelOptions options;
    options.first_owner = owner;
    options.suspicions = 1;
    ExploreWhole(options);
  }
}

TEST(RoundModelTest, AbsenceAndLateStartsOfTwoMembersAreExploredToo) {
  ModelOptions options;
  options.members = 2;
  options.crashes = 1;
  options.ready = options.late = true;
  ExploreWhole(options);
}

// What waits for a place in a window is sent, whoever dies and whoever comes late.
TEST(RoundModelTest, NarrowWindowsOfTwoOwnersAreExploredWithADeathAndALateMember) {
  for (const uint32_t window : {1U, 2U}) {
    ModelOptions options;
    options.members = 2;
    options.chunks = 4;
    options.owners = 2;
    options.window = window;
    options.crashes = 1;
    options.suspicions = 2;
    options.ready = true;
    ExploreWhole(options);
  }
}

struct WindowCase {
  int members, chunks;
  uint32_t window;
  int victim, late;
  bool death_first = false;  // the late member opens after it
};

void ExploreWindow(const WindowCase& chosen) {
  ModelOptions options;
  options.members = chosen.members;
  options.chunks = chosen.chunks;
  options.owners = 2;  // ranks 0 and 1
  options.window = chosen.window;
  options.crashes = 1;
  options.victim = chosen.victim;
  options.late_member = chosen.late;
  options.late_until_death = chosen.death_first;
  options.suspicions = chosen.death_first ? 1 : 2;
  options.mistakes = false;
  const ModelReport report = ExploreWhole(options);
  EXPECT_GT(report.healed, 0U);
}

// In four members three are left that can wait for each other. The owner waits for the late member,
// a third one has its window full, and the late one must not begin with what the dead one owned.
TEST(RoundModelTest, ThreeThatOutliveAnOwnerDoNotWaitForEachOther) {
  ExploreWindow({4, 2, 1, 0, 3, true});
}

TEST(RoundModelTest, NarrowWindowsOfThreeMembersAreExploredWithADeathAndALateMember) {
  for (const uint32_t window : {1U, 2U})
    for (const int late : {1, 2}) ExploreWindow({3, 4, window, 0, late, true});
}

// CROWDSURF_MODEL_WHOLE=1: some twenty minutes of a core, and 3 GB (docs/round.md).
TEST(RoundModelTest, EachMemberOfThreeDiesAndEachComesLate) {
  if (Wanted("CROWDSURF_MODEL_WHOLE", 0) == 0) GTEST_SKIP() << "CROWDSURF_MODEL_WHOLE is not set";
  for (const uint32_t window : {1U, 2U})
    for (const int victim : {0, 1, 2})
      for (const int late : {0, 1, 2})
        if (late != victim) ExploreWindow({3, 3, window, victim, late});
}

// Lazy reception is an argument, so it is checked where the full exploration is small.
TEST(RoundModelTest, ExploringEagerlyFindsTheSame) {
  for (const bool lazy : {true, false}) {
    ModelOptions options;
    options.members = 2;
    options.crashes = 1;
    options.chunks = 2;
    options.lazy = lazy;
    ExploreWhole(options);
  }
}

// ---- planted faults ---------------------------------------------------------------------------
TEST(RoundModelTest, ApplyingWithoutWaitingForHaveIsCaught) {
  ModelOptions options;
  options.apply_early = true;
  const ModelReport report = Explorer(options).Explore();
  Print(options, report);
  EXPECT_EQ(report.violation.substr(0, 2), "S1");
}

TEST(RoundModelTest, AFastPathOnAMajorityIsCaught) {
  ModelOptions options;
  options.fast_on_majority = true;
  const ModelReport report = Explorer(options).Explore();
  Print(options, report);
  EXPECT_TRUE(report.violation.starts_with("S")) << report.violation;
}

TEST(RoundModelTest, AWitnessThatForgetsItsPromiseIsCaught) {
  ModelOptions options;
  options.witness_forgets = true;
  const ModelReport report = Explorer(options).Explore();
  Print(options, report);
  EXPECT_EQ(report.violation.substr(0, 2), "S3");
}

}  // namespace
}  // namespace crowdsurf::worker::testing
