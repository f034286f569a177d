// Workers that do not train: what is said of them, when, and how often.
#include "cli/run/start_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StartingWorker Waiting(const char* name, const char* cause, double seconds) {
  return {.name = name, .agent_up = true, .wait = cause, .waiting_seconds = seconds};
}

constexpr char kNoTrainer[] =
    "no trainer has connected to its agent: does the program call the client?";

TEST(StartWatchTest, ACauseThatLastsIsSaidOnceWithTheWorkersThatHaveIt) {
  StartWatch watch(std::nullopt);
  EXPECT_THAT(watch.Look(29, {Waiting("j-0-1", "trainer", 29), Waiting("j-1-1", "trainer", 28)}),
              IsEmpty());
  EXPECT_THAT(
      watch.Look(31, {Waiting("j-0-1", "trainer", 31), Waiting("j-1-1", "trainer", 30)}),
      ElementsAre("j-0-1, j-1-1 do not train yet, for 31 s: no trainer has connected to its "
                  "agent: does the program call the client?"));
  EXPECT_THAT(watch.Look(90, {Waiting("j-0-1", "trainer", 90), Waiting("j-1-1", "trainer", 89)}),
              IsEmpty());
  EXPECT_THAT(watch.Look(150, {Waiting("j-0-1", "step", 45)}),
              ElementsAre("j-0-1 does not train yet, for 45 s: its trainer has connected and has "
                          "made no step"));
}

TEST(StartWatchTest, AnAgentThatIsNotUpHasNobodyElseToSaySo) {
  StartWatch watch(std::nullopt);
  EXPECT_THAT(watch.Look(100, {{.name = "j-0-1"}}), IsEmpty());
  EXPECT_THAT(watch.Look(129, {{.name = "j-0-1"}}), IsEmpty());
  EXPECT_THAT(watch.Look(130, {{.name = "j-0-1"}}),
              ElementsAre("j-0-1 does not train yet, for 30 s: its agent is not up"));
}

TEST(StartWatchTest, EveryCauseOfTheAgentHasWords) {
  for (const char* cause : {"signer", "trainer", "step", "peers", "state", "volume"}) {
    StartWatch watch(std::nullopt);
    EXPECT_EQ(watch.Look(40, {Waiting("j-0-1", cause, 40)}).size(), 1u) << cause;
    EXPECT_NE(watch.why(), "") << cause;
  }
  StartWatch watch(std::nullopt);
  EXPECT_THAT(watch.Look(40, {Waiting("j-0-1", "\x1b[2J", 40), Waiting("j-1-1", "", 40)}),
              IsEmpty());
}

TEST(StartWatchTest, WhyIsTheCauseOfMost) {
  StartWatch watch(std::nullopt);
  watch.Look(1, {Waiting("j-0-1", "peers", 1), Waiting("j-1-1", "trainer", 1),
                 Waiting("j-2-1", "trainer", 1)});
  EXPECT_EQ(watch.why(), kNoTrainer);
}

TEST(StartWatchTest, DurationBoundsTheStart) {
  EXPECT_FALSE(StartWatch(std::nullopt).Over(1e9, 0));
  const StartWatch watch(Seconds(5));
  EXPECT_FALSE(watch.Over(1304, 1000));
  EXPECT_TRUE(watch.Over(1305, 1000));
}

}  // namespace
}  // namespace crowdsurf::cli
