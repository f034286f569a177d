// What a Round asks for: results of others that are decided and not here.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "tests/unit/worker_core/round/round_group.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round.h"

namespace crowdsurf::worker {
namespace {

RoundSpec SpecOfTheLast() {
  RoundSpec spec;
  spec.self = 2;
  spec.stake.weight = 1;
  for (uint16_t rank = 0; rank < 3; ++rank) {
    spec.cells.push_back({PeerAt(rank), {}});
    spec.witnesses.push_back(PeerAt(rank));
    spec.chunks.push_back({rank, rank, 1});
  }
  return spec;
}

// Rank 0 decided alone, and holds the results of all chunks.
Decided DecidedByTheFirst(const RoundSpec& spec) {
  Decided decided{.ballot = 1, .branch = false, .held = {}};
  decided.held.members = RankSet::Of(0);
  decided.held.value.stakes = {spec.stake, {}, {}};
  for (uint64_t c = 0; c < spec.chunks.size(); ++c)
    decided.held.value.chunks.push_back({0, RankSet::Of(0), 7 + c});
  return decided;
}

TEST(RoundFetch, AResultThatIsOnItsWayFromTheFirstRankIsNotAskedForAgain) {
  const RoundSpec spec = SpecOfTheLast();
  Round round(spec);
  RoundActions out;
  round.Start(out);
  round.OnFrame(PeerAt(0), {InstanceId(), DecidedByTheFirst(spec)}, out);
  ASSERT_EQ(round.phase(), Round::Phase::kAdopting);
  const auto fetches = [&] {
    return std::count_if(out.begin(), out.end(), [](const RoundAction& action) {
      const auto* send = std::get_if<SendFrame>(&action);
      return send != nullptr && std::holds_alternative<Fetch>(send->frame.body);
    });
  };
  EXPECT_EQ(fetches(), 1);
  round.OnSuspect(PeerAt(1), SuspicionCause::kSilence, out);
  round.OnTrusted(PeerAt(1), out);
  EXPECT_EQ(fetches(), 1) << "rank 0 sends all of it";
}

// A request may be made again before its answer is here. On a thin link the answers to all that is
// missing would queue up once more each time.
TEST(RoundFetch, ResultsAreAskedForAWindowAtATime) {
  RoundSpec spec = SpecOfTheLast();
  spec.chunks.clear();
  for (uint16_t c = 0; c < 100; ++c) spec.chunks.push_back({0, c, 1});
  Round round(spec);
  RoundActions out;
  round.Start(out);
  const Decided decided = DecidedByTheFirst(spec);
  out.clear();
  round.OnFrame(PeerAt(0), {InstanceId(), decided}, out);
  std::deque<ChunkIndex> asked;
  size_t most = 0;
  const auto collect = [&] {
    for (const RoundAction& action : std::exchange(out, {})) {
      const auto* send = std::get_if<SendFrame>(&action);
      const auto* fetch = send == nullptr ? nullptr : std::get_if<Fetch>(&send->frame.body);
      if (fetch != nullptr) asked.insert(asked.end(), fetch->chunks.begin(), fetch->chunks.end());
    }
    most = std::max(most, asked.size());
  };
  collect();
  round.OnCoordinatorLate(out);  // what is out may be lost
  asked.clear();
  collect();
  for (; !asked.empty(); collect()) {
    const ChunkIndex chunk = asked.front();
    asked.pop_front();
    round.OnResult(PeerAt(0), chunk, decided.held.value.chunks[chunk.value()], out);
  }
  EXPECT_EQ(most, spec.window_chunks);
  EXPECT_TRUE(round.over()) << "none is forgotten";
}

TEST(RoundFetch, AnOwnerThatAsksIsSentTheInputOfItsChunkAndNobodyElseIs) {
  Round round(SpecOfTheLast());
  RoundActions out;
  round.Start(out);
  const auto asks = [&](size_t from, uint8_t whose) {
    out.clear();
    round.OnFrame(PeerAt(from), {InstanceId(), Ask{whose, 0, {ChunkIndex(0)}}}, out);
    return out;
  };
  EXPECT_EQ(asks(0, 2), (RoundActions{SendInput{PeerAt(0), ChunkIndex(0), 0}}));
  EXPECT_EQ(asks(1, 2), RoundActions()) << "it does not own the chunk";
  EXPECT_EQ(round.counts().refused.at(FrameRefusal::kAskSuperseded), 1U);
  for (const auto& [from, whose] : {std::pair(0, 1), {2, 2}, {9, 2}})
    EXPECT_EQ(asks(static_cast<size_t>(from), static_cast<uint8_t>(whose)), RoundActions());
  EXPECT_EQ(round.counts().refused.at(FrameRefusal::kAskStranger), 3U);
}

TEST(RoundFetch, WhenOneBeginsAnewTheOthersAreNotSentTheirInputsAgain) {
  const RoundSpec spec = SpecOfTheLast();
  Round round(spec);
  RoundActions out;
  round.Start(out);
  const auto inputs_to = [&](size_t rank) {
    return std::count_if(out.begin(), out.end(), [&](const RoundAction& action) {
      const auto* input = std::get_if<SendInput>(&action);
      return input != nullptr && input->to == PeerAt(rank);
    });
  };
  const auto say_ready = [&](size_t rank, bool again) {
    const Ready ready{spec.stake, {}, MemberListHash(spec.cells), PartsHash(spec.chunks), again};
    round.OnFrame(PeerAt(rank), {InstanceId(), ready}, out);
  };
  say_ready(0, false);
  say_ready(1, false);
  EXPECT_EQ(inputs_to(0), 1);
  EXPECT_EQ(inputs_to(1), 1);
  say_ready(0, true);
  EXPECT_EQ(inputs_to(0), 2);
  round.OnSuspect(PeerAt(1), SuspicionCause::kSilence, out);
  round.OnTrusted(PeerAt(1), out);
  EXPECT_EQ(inputs_to(1), 1);
}

// Everything else is there: the last stand-in of an empty cell was all that was waited for.
TEST(RoundFetch, AStandInThatCannotSpeakHoldsUpNobody) {
  RoundSpec spec;
  spec.cells = {{PeerAt(0), {}}, {PeerAt(1), {}}, {std::nullopt, {PeerAt(9)}}};
  spec.witnesses = {PeerAt(0), PeerAt(1)};
  spec.chunks = {{0, 0, 1}, {1, 1, 1}};
  spec.stake.weight = 1;
  Round round(spec);
  RoundActions out;
  round.Start(out);
  const Ready ready{spec.stake, {}, MemberListHash(spec.cells), PartsHash(spec.chunks)};
  round.OnFrame(PeerAt(1), {InstanceId(), ready}, out);
  EXPECT_TRUE(round.OnInput(PeerAt(1), 1, ChunkIndex(0), 0, out));
  const auto folds = [&] {
    return std::count_if(out.begin(), out.end(), [](const RoundAction& action) {
      return std::holds_alternative<FoldChunk>(action);
    });
  };
  EXPECT_EQ(folds(), 0) << "the stand-in may speak yet";
  round.OnFrame(PeerAt(9), {InstanceId(), Bye{ByeReason::kCannotSpeak}}, out);
  EXPECT_EQ(folds(), 1);
}

// A reset takes what was on its way. Nobody is silent, so no ballot would ask before its time.
TEST(RoundFetch, WhatWasOnItsWayWhenALinkBrokeIsAskedForWhenItIsThereAgain) {
  RoundGroup group;
  group.StartAll();
  const auto input = [](const RoundAction& action) {
    const auto* sent = std::get_if<SendInput>(&action);
    return sent != nullptr && sent->to == PeerAt(1);
  };
  const auto result = [](const RoundAction& action) {
    const auto* sent = std::get_if<SendResult>(&action);
    return sent != nullptr && sent->to == PeerAt(2) && sent->chunk == ChunkIndex(0);
  };
  group.Settle([&](const RoundAction& action) { return !input(action) && !result(action); });
  // Lost: an input of 0 and the result of 0. Those of 2 were only late.
  const auto lost =
      std::erase_if(group.wire, [](const RoundGroup::Sent& sent) { return sent.from == 0; });
  ASSERT_EQ(lost, 2U);
  group.Settle();
  for (int i = 0; i < kRoundMembers; ++i) ASSERT_FALSE(group.at(i).over()) << i;
  group.Do(1, [](Round& r, RoundActions& out) { r.OnRenewed(PeerAt(0), out); });
  group.Do(2, [](Round& r, RoundActions& out) { r.OnRenewed(PeerAt(0), out); });
  group.Settle();
  for (int i = 0; i < kRoundMembers; ++i) {
    ASSERT_TRUE(group.at(i).over()) << i;
    EXPECT_EQ(group.at(i).outcome()->outcome, Outcome::kFast) << i;
  }
}

TEST(RoundFetch, ARenewedLinkOfAStrangerOrOfAMemberWithNothingUnderWayAsksForNothing) {
  RoundGroup group;
  group.StartAll();
  group.Settle();
  for (const size_t whom : {size_t{0}, size_t{9}}) {
    group.Do(1, [&](Round& r, RoundActions& out) {
      r.OnRenewed(PeerAt(whom), out);
      EXPECT_TRUE(out.empty());
    });
  }
}

}  // namespace
}  // namespace crowdsurf::worker
