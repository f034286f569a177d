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
      "%d members, %d chunks (first owner %d), %d ballots, %d crashes: %s%s; states %lu, steps "
      "%lu, healed %lu, orphans %lu, quorum lost %lu, local nodes %zu, messages %zu\n",
      options.members, options.chunks, options.first_owner, options.ballots, options.crashes,
      report.exhaustive ? "exhaustive" : "stopped", report.violation.c_str(),
      static_cast<unsigned long>(report.states), static_cast<unsigned long>(report.steps),
      static_cast<unsigned long>(report.healed), static_cast<unsigned long>(report.orphans),
      static_cast<unsigned long>(report.quorum_lost), report.nodes, report.messages);
  fflush(stdout);
}

// CROWDSURF_MODEL_{MEMBERS,CHUNKS,OWNER,BALLOTS,CRASHES,READY,LATE} choose larger configurations.
TEST(RoundModelTest, EveryInterleavingOfTwoMembersKeepsTheStatements) {
  ModelOptions options;
  options.members = Wanted("CROWDSURF_MODEL_MEMBERS", 2);
  options.chunks = Wanted("CROWDSURF_MODEL_CHUNKS", 1);
  options.first_owner = Wanted("CROWDSURF_MODEL_OWNER", 0);
  options.ballots = Wanted("CROWDSURF_MODEL_BALLOTS", 1);
  options.crashes = Wanted("CROWDSURF_MODEL_CRASHES", 1);
  options.ready = Wanted("CROWDSURF_MODEL_READY", 0) != 0;
  options.late = Wanted("CROWDSURF_MODEL_LATE", 0) != 0;
  options.lazy = Wanted("CROWDSURF_MODEL_LAZY", 1) != 0;
  options.most_states = static_cast<uint64_t>(Wanted("CROWDSURF_MODEL_STATES", 100'000'000));
  const ModelReport report = Explorer(options).Explore();
  Print(options, report);
  EXPECT_EQ(report.violation, "");
  EXPECT_TRUE(report.exhaustive);
}

}  // namespace
}  // namespace crowdsurf::worker::testing
