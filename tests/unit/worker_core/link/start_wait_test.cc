// The cause for which a worker does not train yet, step by step of a start.
#include "worker/core/link/start_wait.h"

#include <gtest/gtest.h>

namespace crowdsurf::worker {
namespace {

Time At(double seconds) { return Time::FromNanoseconds(1) + Seconds(seconds); }

TEST(StartWaitTest, NamesTheFirstThingThatIsMissing) {
  StartFacts facts;
  EXPECT_EQ(WaitsFor(facts), "signer");
  facts.certified = true;
  EXPECT_EQ(WaitsFor(facts), "trainer");
  facts.trainer = facts.restoring = true;
  EXPECT_EQ(WaitsFor(facts), "volume");
  facts.restoring = false;
  EXPECT_EQ(WaitsFor(facts), "peers");
  facts.in_view = true;
  EXPECT_EQ(WaitsFor(facts), "peers") << "no seat yet";
  facts.seated = facts.held = true;
  EXPECT_EQ(WaitsFor(facts), "state");
  facts.held = false;
  EXPECT_EQ(WaitsFor(facts), "trainer") << "it makes no first step";
  facts.stepped = true;
  EXPECT_EQ(WaitsFor(facts), "");
  facts.trainer = false;
  EXPECT_EQ(WaitsFor(facts), "") << "what comes after the first step has reasons of its own";
}

TEST(StartWaitTest, CountsFromTheBeginningOfTheCause) {
  StartWait wait(At(0));
  EXPECT_EQ(wait.cause(), "signer");
  wait.Look(At(7), {});
  EXPECT_EQ(wait.waited(At(8)), Seconds(8));
  wait.Look(At(10), {.certified = true});
  wait.Look(At(40), {.certified = true});
  EXPECT_EQ(wait.cause(), "trainer");
  EXPECT_EQ(wait.waited(At(45)), Seconds(35));
  wait.Look(At(50), {.certified = true, .trainer = true, .stepped = true});
  EXPECT_EQ(wait.cause(), "");
  EXPECT_EQ(wait.waited(At(60)), Duration());
}

}  // namespace
}  // namespace crowdsurf::worker
