// Real peers in a small world without faults: they come together, average without a ballot, and
// hold equal vectors; joiners take part.
#include "worker/core/peer/peer.h"

#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {
namespace {

TEST(PeerTest, EightThatStartAtOnceEndInOneViewOfEightWithinHalfASecond) {
  PeerWorld world(1, EveryTenSteps());
  for (int i = 0; i < 8; ++i) world.Add();
  const auto took = world.UntilTogether(Seconds(5));
  ASSERT_TRUE(took);
  EXPECT_LT(took->seconds(), 0.5);
  EXPECT_EQ(world.Summary(0).view->radices, (std::vector<uint16_t>{2, 4}));
}

TEST(PeerTest, TheyAverageWithoutFailuresAndTheMeanIsExact) {
  PeerWorld world(2, EveryTenSteps());
  for (int i = 0; i < 8; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  for (size_t i = 0; i < 8; ++i) world.node(i).drift = static_cast<double>(i);
  world.RunFor(Seconds(2));
  ExpectAgreement(world);
  for (size_t i = 0; i < 8; ++i) {
    const PeerSummary s = world.Summary(i);
    EXPECT_GE(s.averaging, AveragingId(10));
    EXPECT_EQ(s.rounds.failed(), 0U);
    EXPECT_EQ(s.rounds.completed(), s.rounds.fast);
    EXPECT_EQ(world.node(i).deliveries.back().samples, 8 * 88.0);
  }
}

// A hole of a third axis is spoken for by members that hold one decided value: whoever its owners
// hear first, there is nothing to disagree about.
TEST(PeerTest, HolesInAGridOfThreeAxesCostNoBallot) {
  for (const uint64_t seed : {5U, 6U, 7U}) {
    PeerWorld world(seed, EveryTenSteps(3));
    world.jitter = 5;
    for (size_t i = 0; i < 11; ++i) {
      world.Add();
      world.node(i).drift = static_cast<double>(i);
    }
    ASSERT_TRUE(world.UntilTogether(Seconds(5))) << seed;
    ASSERT_EQ(world.Summary(0).view->radices.size(), 3U);
    const AveragingId before = world.Summary(0).averaging;
    world.RunFor(Seconds(4));
    EXPECT_GT(world.Summary(0).averaging, before + 20);
    for (size_t i = 0; i < 11; ++i) EXPECT_EQ(world.Summary(i).rounds.repaired, 0U) << seed;
    ExpectAgreement(world);
  }
}

// With two axes every member ends with one and the same vector.
TEST(PeerTest, AllMembersHoldTheSameVectorAfterAnAveraging) {
  for (const size_t members : {1U, 2U, 3U, 5U, 7U, 8U, 11U, 16U, 23U}) {
    PeerWorld world(members, EveryTenSteps());
    for (size_t i = 0; i < members; ++i) {
      world.Add();
      world.node(i).drift = static_cast<double>(i);
    }
    ASSERT_TRUE(world.UntilTogether(Seconds(5))) << members;
    world.RunFor(Seconds(1));
    ExpectAgreement(world);
    const Deliver last = world.node(0).deliveries.back();
    const auto& first = world.node(0).At(last.region).values;
    for (size_t i = 1; i < members; ++i) {
      const auto& d = world.node(i).deliveries.back();
      if (d.averaging != last.averaging) continue;
      for (size_t e = 0; e < first.size(); ++e)
        EXPECT_NEAR(world.node(i).At(d.region).values[e], first[e], 1e-9) << members << " " << i;
      EXPECT_EQ(world.Summary(i).rounds.failed(), 0U);
    }
    EXPECT_GE(last.averaging, AveragingId(5)) << members;
  }
}

TEST(PeerTest, AJoinerFetchesTheCommittedAverageAndTakesPart) {
  PeerWorld world(5, EveryTenSteps());
  for (int i = 0; i < 5; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(1));
  const size_t late = world.Add();
  const auto took = world.UntilTogether(Seconds(5));
  ASSERT_TRUE(took);
  EXPECT_LT(took->seconds(), 1);
  EXPECT_GE(world.node(late).fetches.size(), 1U);
  world.RunFor(Seconds(1));
  ExpectAgreement(world);
  EXPECT_GE(world.node(late).deliveries.size(), 5U);
  EXPECT_TRUE(world.Summary(late).joined_with_state);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << i;
}

// With two axes an averaging writes over both inboxes, the last average's too, before it has one of
// its own. Joiners come at any instant of it.
TEST(PeerTest, AJoinerIsSentForNothingThatIsOverwritten) {
  size_t sent = 0;
  for (int64_t at = 0; at < 120; at += 6) {
    PeerWorld world(41, EveryTenSteps(2));
    for (size_t i = 0; i < 4; ++i)
      world.node(world.Add()).drift = 0.25 * static_cast<double>(i + 1);
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.jitter = 20;  // rounds take tens of milliseconds
    world.RunFor(Milliseconds(500 + at));
    world.lose = [&](size_t from, size_t, const Message& message) {
      const auto* answer = std::get_if<message::JoinAnswer>(&message);
      if (answer == nullptr || answer->kind != message::JoinAnswer::Kind::kFetchFirst) return false;
      ++sent;
      const Committed& named = answer->committed;
      // Nothing is held any more once its region has been opened for a round or written.
      EXPECT_NE(world.node(from).Holds(named.averaging, named.root).average, nullptr)
          << at << ": averaging " << named.averaging;
      return false;
    };
    world.Add();
    EXPECT_TRUE(world.UntilTogether(Seconds(5))) << at << world.Describe();
    EXPECT_EQ(world.Summary(4).joined_with_state, true) << at;
  }
  EXPECT_GT(sent, 0U) << "nobody was sent to fetch: this tested nothing";
}

// Its seat is told to everybody, and its record changes; here half of the group hears of neither
// (docs/round.md), and knows it by the time that it takes part all the same.
TEST(PeerTest, AJoinerWhoseSeatHalfOfTheGroupIsNotToldOfTakesPart) {
  for (uint64_t seed = 60; seed < 70; ++seed) {
    PeerWorld world(seed, EveryTenSteps(4));
    for (int i = 0; i < 7; ++i) world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5))) << seed;
    world.RunFor(Milliseconds(300));
    size_t lost = 0;
    world.lose = [&](size_t, size_t to, const Message& message) {
      const bool loses = to % 2 == 1 && std::holds_alternative<message::SeatingNews>(message);
      lost += loses;
      return loses;
    };
    world.lose_news = [](size_t from, size_t to) { return to % 2 == 1 && from == 7; };
    const size_t late = world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5))) << seed << world.Describe();
    world.RunFor(Seconds(1));
    EXPECT_GT(lost, 0U) << seed << ": nobody was told anything: this tested nothing";
    ExpectAgreement(world);
    EXPECT_GE(world.node(late).deliveries.size(), 5U) << seed;
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << seed << i;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
