// How many inputs a Round has under way to an owner, and what becomes of those that get lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/unit/worker_core/round/round_group.h"

namespace crowdsurf::worker {
namespace {

constexpr int kChunks = 30;  // ten for each owner

void Narrow(RoundSpec& spec) {
  spec.window_chunks = 2;
  spec.max_window_chunks = 6;
}

struct WindowGroup : RoundGroup {
  explicit WindowGroup(int chunks = kChunks) : RoundGroup(Narrow, chunks) {}

  // All have opened the round, and the first inputs are under way.
  void Open() {
    StartAll();
    Settle([](const RoundAction& action) { return Is<Ready>(action); });
  }
  void SetWindow(int self, int owner, uint32_t chunks) {
    Do(self, [&](Round& r, RoundActions& out) {
      r.OnWindow(PeerAt(static_cast<size_t>(owner)), chunks, out);
    });
  }
  size_t SentTo(int self, int owner) const {
    const RoundActions& actions = done[static_cast<size_t>(self)];
    return static_cast<size_t>(
        std::count_if(actions.begin(), actions.end(), [&](const RoundAction& action) {
          const auto* input = std::get_if<SendInput>(&action);
          return input != nullptr && input->to == PeerAt(static_cast<size_t>(owner));
        }));
  }
  std::vector<Ask> Asks(int self) const {
    std::vector<Ask> asks;
    for (const RoundAction& action : done[static_cast<size_t>(self)])
      if (Is<Ask>(action)) asks.push_back(std::get<Ask>(std::get<SendFrame>(action).frame.body));
    return asks;
  }
  // A connection broke, and what was under way from 0 to 1 is lost. Then 1 hears of 0 again.
  void LoseAndTrust() {
    std::erase_if(wire, [](const Sent& sent) {
      const auto* input = std::get_if<SendInput>(&sent.action);
      return input != nullptr && sent.from == 0 && input->to == PeerAt(1);
    });
    Do(1, [](Round& r, RoundActions& out) { r.OnTrusted(PeerAt(0), out); });
  }
};

TEST(RoundWindowTest, AWiderWindowSendsAtOnceAndOnlyToItsOwner) {
  WindowGroup group;
  group.Open();
  EXPECT_EQ(group.SentTo(0, 1), 2U);
  group.SetWindow(0, 1, 5);
  EXPECT_EQ(group.SentTo(0, 1), 5U);
  EXPECT_EQ(group.SentTo(0, 2), 2U);
  group.SetWindow(0, 1, 100);
  EXPECT_EQ(group.SentTo(0, 1), 6U) << "the most of the spec";
  group.Settle();
  for (int i = 0; i < kRoundMembers; ++i) EXPECT_TRUE(group.at(i).over());
  EXPECT_EQ(group.SentTo(0, 1), 10U);
}

TEST(RoundWindowTest, BeforeTheRoundIsOpenThereItIsKept) {
  WindowGroup group;
  group.SetWindow(0, 1, 4);
  EXPECT_EQ(group.SentTo(0, 1), 0U);
  group.Open();
  EXPECT_EQ(group.SentTo(0, 1), 4U);
}

TEST(RoundWindowTest, ANarrowerOneHoldsBackUntilResultsHaveCome) {
  WindowGroup group;
  group.Open();
  group.SetWindow(0, 1, 6);
  group.SetWindow(0, 1, 1);
  EXPECT_EQ(group.at(0).window(PeerAt(1)), 2U) << "the least of the spec";
  const auto give = [&](uint32_t nth) {
    group.Do(0, [&](Round& r, RoundActions& out) {
      r.OnResult(PeerAt(1), ChunkIndex(1 + 3 * nth), {0, RankSet::FirstRanks(3), 7}, out);
    });
  };
  for (uint32_t nth = 0; nth < 4; ++nth) give(nth);
  EXPECT_EQ(group.SentTo(0, 1), 6U);
  give(4);
  EXPECT_EQ(group.SentTo(0, 1), 7U);
}

TEST(RoundWindowTest, ItSaysWhoseResultsAreAwaited) {
  WindowGroup group;
  group.Open();
  const Round& round = group.at(0);
  EXPECT_TRUE(round.AwaitsResult(PeerAt(1), ChunkIndex(1)));
  EXPECT_FALSE(round.AwaitsResult(PeerAt(2), ChunkIndex(1)));
  EXPECT_FALSE(round.AwaitsResult(PeerAt(1), ChunkIndex(7))) << "not sent yet";
  EXPECT_FALSE(round.AwaitsResult(PeerAt(0), ChunkIndex(0))) << "its own";
  EXPECT_FALSE(round.AwaitsResult(PeerAt(1), ChunkIndex(kChunks)));
  group.Do(0, [](Round& r, RoundActions& out) {
    r.OnResult(PeerAt(1), ChunkIndex(1), {0, RankSet::FirstRanks(3), 7}, out);
  });
  EXPECT_FALSE(round.AwaitsResult(PeerAt(1), ChunkIndex(1)));
}

// The owner does not know how wide the other's window is.
TEST(RoundWindowTest, AfterABrokenConnectionAWholeWidestWindowIsAskedForAgain) {
  WindowGroup group;
  group.Open();
  group.SetWindow(0, 1, 6);
  group.LoseAndTrust();
  ASSERT_EQ(group.Asks(1).size(), 1U);
  EXPECT_EQ(group.Asks(1)[0].chunks.size(), 6U);
  group.Settle();
  for (int i = 0; i < kRoundMembers; ++i) ASSERT_TRUE(group.at(i).over());
  EXPECT_EQ(group.at(0).outcome()->outcome, Outcome::kFast);
}

TEST(RoundWindowTest, WhatIsAskedForAndWasNotSentWaitsForAPlaceInTheWindow) {
  WindowGroup group;
  group.Open();
  group.LoseAndTrust();  // two were under way; six are asked for
  ASSERT_EQ(group.Asks(1)[0].chunks.size(), 6U);
  group.Settle([](const RoundAction& action) { return Is<Ask>(action); });
  EXPECT_EQ(group.SentTo(0, 1), 4U) << "the two again, and nothing beyond the window";
  group.Settle();
  for (int i = 0; i < kRoundMembers; ++i) ASSERT_TRUE(group.at(i).over());
  EXPECT_EQ(group.at(0).outcome()->outcome, Outcome::kFast);
  EXPECT_EQ(group.SentTo(0, 1), 12U) << "each once, and the two that got lost again";
}

TEST(RoundWindowTest, AnAskBeforeTheOwnersReadyIsAnsweredWithinTheWindow) {
  WindowGroup group;
  Round& round = group.at(0);
  RoundActions out;
  round.Start(out);
  out.clear();
  std::vector<ChunkIndex> chunks;
  for (uint32_t c = 1; c < kChunks; c += 3) chunks.push_back(ChunkIndex(c));
  round.OnFrame(PeerAt(1), {InstanceId(), Ask{0, 0, chunks}}, out);
  EXPECT_EQ(out, (RoundActions{SendInput{PeerAt(1), ChunkIndex(1), 0},
                               SendInput{PeerAt(1), ChunkIndex(4), 0}}));
}

// Each of the others may wait for another chunk of that owner. What it asks for comes all the same.
TEST(RoundWindowTest, AnAskServesAFirstWindowWhateverIsOut) {
  WindowGroup group;
  group.Open();  // 1 and 4 are out
  group.done[0].clear();
  const std::vector<ChunkIndex> chunks = {ChunkIndex(7), ChunkIndex(10), ChunkIndex(13)};
  group.Do(0, [&](Round& r, RoundActions& out) {
    r.OnFrame(PeerAt(1), {InstanceId(), Ask{0, 0, chunks}}, out);
  });
  EXPECT_EQ(group.done[0], (RoundActions{SendInput{PeerAt(1), ChunkIndex(7), 0},
                                         SendInput{PeerAt(1), ChunkIndex(10), 0}}));
  group.Settle();
  for (int i = 0; i < kRoundMembers; ++i) ASSERT_TRUE(group.at(i).over());
  EXPECT_EQ(group.SentTo(0, 1), 8U) << "each of the others once";
}

// All members send to an owner in one order. Else one waits with its window full of the owner's
// first chunks for another one, whose window is full of what a plan gave the owner since.
TEST(RoundWindowTest, WhatAPlanAddsIsSentAfterWhatWasOwedBefore) {
  WindowGroup group(90);
  group.Open();
  group.dead.insert(2);
  group.Suspect(0, 2);
  group.Suspect(1, 2);
  group.Settle();
  std::vector<std::pair<Ballot, uint32_t>> sent;
  for (const RoundAction& action : group.done[0])
    if (const auto* input = std::get_if<SendInput>(&action); input != nullptr)
      if (input->to == PeerAt(1)) sent.emplace_back(input->assigned, input->chunk.value());
  ASSERT_GT(sent.size(), 30U) << "and some of the chunks of 2";
  EXPECT_TRUE(std::ranges::is_sorted(sent));
  EXPECT_LT(sent.back().second, 88U) << "a lower one than the owner's last came after it";
}

// An owner keeps few inputs of a plan that it has not seen: agents of the last release, too.
TEST(RoundWindowTest, UnderAPlanItIsTheLeastUntilTheOwnerGivesAResultOfIt) {
  WindowGroup group(90);
  group.Open();
  group.SetWindow(0, 1, 6);
  group.dead.insert(2);
  group.Suspect(0, 2);
  group.Suspect(1, 2);
  const auto of_plan = [](const RoundAction& action) {
    const auto* result = std::get_if<SendResult>(&action);
    return result != nullptr && result->assigned > 0;
  };
  // Of the chunks of 2 that are the owner's now.
  const auto sent = [&] {
    const RoundActions& actions = group.done[0];
    return std::count_if(actions.begin(), actions.end(), [](const RoundAction& action) {
      const auto* input = std::get_if<SendInput>(&action);
      return input != nullptr && input->to == PeerAt(1) && input->assigned > 0;
    });
  };
  group.Settle([&](const RoundAction& action) { return !of_plan(action); });
  EXPECT_EQ(sent(), 2);
  const size_t before = group.SentTo(0, 1);
  bool once = false;
  group.Settle([&](const RoundAction& action) {
    if (!of_plan(action)) return !std::holds_alternative<SendInput>(action);
    return std::get<SendResult>(action).to == PeerAt(0) && !std::exchange(once, true);
  });
  EXPECT_EQ(group.SentTo(0, 1) - before, 1U + 4) << "in its place, and in those of the window";
  group.Settle();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(group.at(i).over());
    EXPECT_EQ(group.at(i).outcome()->outcome, Outcome::kRepaired);
  }
}

}  // namespace
}  // namespace crowdsurf::worker
