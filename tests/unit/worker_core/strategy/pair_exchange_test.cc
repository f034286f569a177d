// The transport of pairs against a script: what is said, sent and kept where messages arrive, and
// what strangers and the dead leave.
#include "tests/unit/worker_core/strategy/pair_end.h"

#include <algorithm>

namespace crowdsurf::worker {
namespace {

using End = PairEnd;
using Kind = PairWord::Kind;

TEST(PairExchangeTest, BothEndsMoveAndNothingIsLeft) {
  End a(kA), b(kB);
  a.Push(kB);
  const auto push = a.Sent();
  EXPECT_EQ(push.to, kB);
  EXPECT_EQ(push.tag, kPairTag);
  EXPECT_EQ(push.chunks, kChunks);
  const auto last = a.pairs.Describe(kB, kPairTag, push.number, kChunks - 1);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->begin, 8u);
  EXPECT_EQ(last->elements, 2u);
  EXPECT_EQ(last->sum_of[0], Region::kExtra0) << "the model, as it is when it leaves";

  b.Take(kA, push, 1);
  EXPECT_FALSE(b.out.whole);
  b.Take(Chunk(kA, kPairTag, push.number, 1));
  EXPECT_TRUE(b.out.whole);
  b.TakeWhole();
  const auto reply = b.Sent();
  EXPECT_EQ(reply.to, kA);
  EXPECT_EQ(reply.number, push.number);
  EXPECT_EQ(b.pairs.Describe(kA, kPairReplyTag, push.number, 0)->sum_of[0], Region::kExtra2);

  a.now = a.now + Milliseconds(30);
  a.Take(kB, reply);
  ASSERT_TRUE(a.out.replied);
  EXPECT_EQ(a.out.replied->region, Region::kExtra1);
  EXPECT_EQ(a.out.replied->took, Milliseconds(30));
  EXPECT_EQ(a.Said(), (std::vector<PairWord>{{Kind::kDone, push.number}}));
  EXPECT_TRUE(a.pairs.idle());
  b.pairs.OnWord(b.now, kA, {Kind::kDone, push.number}, b.out);
  EXPECT_TRUE(b.pairs.idle());
  EXPECT_EQ(a.counters().committed, 1u);
  EXPECT_EQ(b.counters().committed, 1u);
  EXPECT_TRUE(a.pairs.NextDeadline().infinite());
  EXPECT_TRUE(b.pairs.NextDeadline().infinite());
}

// The message as its sender describes it, every chunk of it.
void Carry(const End& from, const PairExchange::SendModel& message, End& to) {
  for (uint32_t at = 0; at < message.chunks; ++at) {
    const auto described = from.pairs.Describe(to.id, message.tag, message.number, at);
    ASSERT_TRUE(described);
    MixArrived chunk = Chunk(from.id, message.tag, message.number, at);
    chunk.lag = described->lag;
    to.Take(chunk);
  }
}

TEST(PairExchangeTest, BothEndsGoByTheGreaterRestraint) {
  for (const auto& [mine, theirs] : {std::pair{0, 0}, {300, 0}, {0, 300}, {300, 500}, {500, 300}}) {
    End a(kA), b(kB);
    a.pairs.SetRestraint(mine);
    b.pairs.SetRestraint(theirs);
    a.Push(kB);
    Carry(a, a.Sent(), b);
    const auto region = b.pairs.TakeWhole();
    ASSERT_TRUE(region);
    EXPECT_EQ(b.pairs.RestraintOf(*region), std::max(mine, theirs));
    b.pairs.Reply(b.now, *region, b.out);
    // What they ask for from now on is no matter of this exchange.
    a.pairs.SetRestraint(500 - mine);
    b.pairs.SetRestraint(500 - theirs);
    Carry(b, b.Sent(), a);
    ASSERT_TRUE(a.out.replied);
    EXPECT_EQ(a.out.replied->restraint, std::max(mine, theirs));
  }
}

TEST(PairExchangeTest, ARestraintBeyondAllBoundsIsTheBound) {
  for (const auto& [said, taken] : {std::pair<int64_t, int64_t>{INT64_MAX, 500}, {-1, 0}}) {
    End b(kB);
    for (uint32_t at = 0; at < kChunks; ++at) {
      MixArrived chunk = Chunk(kA, kPairTag, 7, at);
      chunk.lag = said;
      b.Take(chunk);
    }
    const auto region = b.pairs.TakeWhole();
    ASSERT_TRUE(region);
    EXPECT_EQ(b.pairs.RestraintOf(*region), taken);
  }
}

TEST(PairExchangeTest, APushWithoutASlotIsAskedForLater) {
  End b(kB);
  End a(kA), c(kC);
  a.Push(kB);
  c.Push(kB);
  const auto first = a.Sent(), second = c.Sent();
  b.Take(kA, first);
  b.Take(kC, second);
  b.TakeWhole();
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kWait, second.number}}));
  b.out = {};
  b.pairs.OnWord(b.now, kA, {Kind::kDone, first.number}, b.out);
  ASSERT_EQ(b.out.says.size(), 1u);
  EXPECT_EQ(b.out.says[0].to, kC);
  EXPECT_EQ(b.out.says[0].word, (PairWord{Kind::kGo, second.number}));
  // The slot is kept for it.
  EXPECT_FALSE(b.Take(Chunk(kA, kPairTag, first.number + 1, 0)));
  c.pairs.OnWord(c.now, kB, b.out.says[0].word, c.out);
  b.out = {};
  const auto again = c.Sent();
  EXPECT_EQ(again.number, second.number);
  // Whoever says it over and over has us send a few times more, and then no more.
  size_t sends = 0;
  for (int i = 0; i < 100; ++i) {
    c.pairs.OnWord(c.now, kB, {Kind::kGo, second.number}, c.out);
    sends += std::exchange(c.out.sends, {}).size();
  }
  EXPECT_EQ(sends, 3u);
  b.Take(kC, again);
  EXPECT_TRUE(b.out.whole);
  EXPECT_EQ(b.counters().repeated + b.counters().strange, 0u);
}

// Its first chunks come too early and its last in time: what was dropped is asked for at once, and
// the neighbour is not asked again when all is over.
TEST(PairExchangeTest, APushThatFindsASlotHalfWayIsAskedForOnce) {
  End b(kB);
  b.Take(kA, {kB, kPairTag, 7, kChunks});
  b.TakeWhole();
  b.Sent();
  EXPECT_FALSE(b.Take(Chunk(kC, kPairTag, 9, 0)));
  EXPECT_FALSE(b.Take(Chunk(kD, kPairTag, 5, 0)));
  b.pairs.OnWord(b.now, kD, {Kind::kGone, 5}, b.out);  // given up before it was asked for
  b.pairs.OnWord(b.now, kC, {Kind::kGone, 9}, b.out);
  EXPECT_FALSE(b.Take(Chunk(kC, kPairTag, 10, 0)));
  b.Said();
  b.pairs.OnWord(b.now, kA, {Kind::kDone, 7}, b.out);
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kGo, 10}}));
  b.Take(kC, {kB, kPairTag, 10, kChunks});
  b.TakeWhole();
  b.Sent();
  b.pairs.OnWord(b.now, kC, {Kind::kDone, 10}, b.out);
  EXPECT_TRUE(b.Said().empty());
  EXPECT_TRUE(b.pairs.idle());
}

TEST(PairExchangeTest, ExchangesThatFindNoSlotWaitAndAreBounded) {
  End a(kA, 2);
  a.Push(kB);
  a.Push(kB);  // one each neighbour at a time
  a.Push(kC);
  a.Push(kD);
  ASSERT_EQ(a.out.sends.size(), 2u);
  EXPECT_EQ(a.out.sends[0].to, kB);
  EXPECT_EQ(a.out.sends[1].to, kC);
  const auto push = a.out.sends[1];
  a.out = {};
  a.Take(kC, {kA, kPairReplyTag, push.number, kChunks});
  ASSERT_EQ(a.out.sends.size(), 1u);
  EXPECT_EQ(a.out.sends[0].to, kD) << "the first that may";
  for (size_t i = 0; i < PairExchange::kMaxPutOff + 5; ++i) a.pairs.Push(kB);
  EXPECT_EQ(a.counters().skipped, 6u);  // one of B waited already
}

TEST(PairExchangeTest, ANaNIsLeftOutUntilItComesSound) {
  End b(kB);
  for (uint32_t chunk = 0; chunk < kChunks; ++chunk)
    b.Take(Chunk(kA, kPairTag, 7, chunk), chunk != 1);
  EXPECT_FALSE(b.out.whole);
  EXPECT_EQ(b.counters().not_finite, 1u);
  b.Take(kA, {kB, kPairTag, 7, kChunks});
  EXPECT_TRUE(b.out.whole);
}

TEST(PairExchangeTest, WhatNoNeighbourSaysIsCountedAndDropped) {
  End b(kB);
  EXPECT_FALSE(b.Take(Chunk(Name("x"), kPairTag, 7, 0)));
  EXPECT_FALSE(b.Take(Chunk(kA, kPairTag, 7, kChunks)));
  MixArrived two = Chunk(kA, kPairTag, 7, 0);
  two.count = 2;
  EXPECT_FALSE(b.Take(two));
  EXPECT_FALSE(b.Take(Chunk(kA, 2, 7, 0)));
  EXPECT_EQ(b.counters().strange, 4u);
  for (const Kind kind : {Kind::kWait, Kind::kGo, Kind::kDone, Kind::kGone})
    b.pairs.OnWord(b.now, Name("x"), {kind, 7}, b.out);
  EXPECT_TRUE(b.out.says.empty());
  EXPECT_TRUE(b.pairs.idle());
  // A reply that was never asked for.
  EXPECT_FALSE(b.Take(Chunk(kA, kPairReplyTag, 7, kChunks - 1)));
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kGone, 7}}));
}

TEST(PairExchangeTest, AStalledPushFreesItsSlot) {
  End b(kB);
  b.Take(Chunk(kA, kPairTag, 7, 0));
  EXPECT_FALSE(b.Take(Chunk(kC, kPairTag, 9, 0)));
  b.Said();
  b.Wait(kLong);
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kGo, 9}}));
  b.Take(kC, {kB, kPairTag, 9, kChunks});
  EXPECT_TRUE(b.out.whole);
  EXPECT_EQ(b.counters().aborted, 0u) << "its end may send it again";
}

TEST(PairExchangeTest, ADeathEndsWhatWasUnderWay) {
  End b(kB);
  b.Push(kA);
  b.Push(kA);
  b.Push(kC);
  b.Sent();
  b.Take(kA, {kB, kPairTag, 7, kChunks});
  b.TakeWhole();
  b.Sent();
  b.Take(kC, {kB, kPairTag, 9, kChunks});
  b.Said();
  b.pairs.OnPeerDown(b.now, kA, b.out);
  EXPECT_EQ(b.counters().aborted, 1u);
  EXPECT_EQ(b.counters().one_sided, 1u);
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kGo, 9}}));
  EXPECT_EQ(b.Sent().to, kC) << "the next that waits, and not the dead one again";
}

TEST(PairExchangeTest, WhoDrainsBeginsNothingAndSaysSo) {
  End b(kB);
  b.Take(kC, {kB, kPairTag, 9, kChunks});
  b.pairs.Drain();
  b.Push(kA);
  EXPECT_TRUE(b.out.sends.empty());
  EXPECT_FALSE(b.Take(Chunk(kA, kPairTag, 7, 0)));
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kGone, 7}}));
  // What is whole is ended as it would be.
  b.TakeWhole();
  EXPECT_EQ(b.Sent().number, 9u);
}

TEST(PairExchangeTest, WhoDrainsAsksForNoPushThatWaits) {
  End b(kB);
  b.Take(kA, {kB, kPairTag, 7, kChunks});
  b.TakeWhole();
  b.Sent();
  b.Take(kC, {kB, kPairTag, 9, kChunks});
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kWait, 9}}));
  b.pairs.Drain();
  b.pairs.OnWord(b.now, kA, {Kind::kDone, 7}, b.out);
  EXPECT_TRUE(b.Said().empty());
  EXPECT_TRUE(b.pairs.idle());
}

TEST(PairExchangeTest, BeforeTheModelIsThereAPushIsRemembered) {
  End b(kB);
  b.pairs.Reset({.model = Region::kExtra0,
                 .own = {Region::kExtra1},
                 .served = {Region::kExtra2},
                 .neighbours = {kA}},
                kElements, kChunk, WireFormat::kFloat32);
  EXPECT_FALSE(b.Take(Chunk(kA, kPairTag, 7, 0)));
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kWait, 7}}));
  b.pairs.Open(b.now, b.out);
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kGo, 7}}));
}

}  // namespace
}  // namespace crowdsurf::worker
