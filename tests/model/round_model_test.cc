#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/model/world/explorer.h"

namespace crowdsurf::worker::testing {
namespace {

int Wanted(const char* variable, int usual) {
  const char* wanted = std::getenv(variable);
  return wanted != nullptr ? std::atoi(wanted) : usual;
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
      options.ready ? ", ready" : "", options.late_member >= 0 ? ", a late member" : "",
      report.exhaustive ? "exhaustive" : "stopped ", report.violation.c_str(),
      static_cast<unsigned long>(report.states), static_cast<unsigned long>(report.steps),
      static_cast<unsigned long>(report.healed), static_cast<unsigned long>(report.orphans),
      static_cast<unsigned long>(report.quorum_lost), report.nodes, report.messages);
  fflush(stdout);
}

// CROWDSURF_MODEL_{MEMBERS,CHUNKS,OWNER,OWNERS,WINDOW,LATE_MEMBER,BALLOTS,CRASHES,SUSPICIONS,READY,LATE,LAZY,STATES}
// choose larger configurations, or other ones.
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
  options.suspicions = Wanted("CROWDSURF_MODEL_SUSPICIONS", 6);
  options.ready = Wanted("CROWDSURF_MODEL_READY", 0) != 0;
  options.late = Wanted("CROWDSURF_MODEL_LATE", 1) != 0;
  options.lazy = Wanted("CROWDSURF_MODEL_LAZY", 1) != 0;
  options.max_states = static_cast<uint64_t>(Wanted("CROWDSURF_MODEL_STATES", 100'000'000));
  const ModelReport report = Explorer(options).Explore();
  Print(options, report);
  EXPECT_EQ(report.violation, "");
  EXPECT_TRUE(report.exhaustive);
  EXPECT_GT(report.healed, 0U);
}

TEST(RoundModelTest, TheOwnerOfTheChunkNeedNotBeTheCoordinator) {
  for (const int owner : {1, 2}) {
    ModelOptions options;
    options.first_owner = owner;
    options.suspicions = 1;
    const ModelReport report = Explorer(options).Explore();
    Print(options, report);
    EXPECT_EQ(report.violation, "");
    EXPECT_TRUE(report.exhaustive);
  }
}

TEST(RoundModelTest, AbsenceAndLateStartsOfTwoMembersAreExploredToo) {
  ModelOptions options;
  options.members = 2;
  options.crashes = 1;
  options.ready = options.late = true;
  const ModelReport report = Explorer(options).Explore();
  Print(options, report);
  EXPECT_EQ(report.violation, "");
  EXPECT_TRUE(report.exhaustive);
}

// What waits for a place in a window is sent, whoever dies and whoever comes late. Three members
// that wait for each other are tests/simulator/round_windows_test.cc: too many states for this.
TEST(RoundModelTest, NarrowWindowsOfTwoOwnersAreExploredWithADeathAndALateMember) {
  for (const uint32_t window : {1U, 2U}) {
    ModelOptions options;
    options.members = 2;
    options.chunks = 4;
    options.owners = 2;
    options.window = window;
    options.crashes = 1;
    options.suspicions = 2;
    options.late_member = 1;
    const ModelReport report = Explorer(options).Explore();
    Print(options, report);
    EXPECT_EQ(report.violation, "");
    EXPECT_TRUE(report.exhaustive);
  }
}

// Lazy reception is an argument, so it is checked where the full exploration is small.
TEST(RoundModelTest, ExploringEagerlyFindsTheSame) {
  for (const bool lazy : {true, false}) {
    ModelOptions options;
    options.members = 2;
    options.crashes = 1;
    options.chunks = 2;
    options.lazy = lazy;
    const ModelReport report = Explorer(options).Explore();
    Print(options, report);
    EXPECT_EQ(report.violation, "");
    EXPECT_TRUE(report.exhaustive);
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
