// The transport of pairs against a script: what is said, sent and kept, for each thing that can
// happen to a message.
#include "worker/core/strategy/pair_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kElements = 10;
constexpr uint32_t kChunk = 4, kChunks = 3;
constexpr Duration kLong = Seconds(3600);  // longer than any patience

PeerId Name(const std::string& name) { return *PeerId::From(Sha256(AsBytes(name)).view()); }
const PeerId kA = Name("a"), kB = Name("b"), kC = Name("c"), kD = Name("d");

MixArrived Chunk(const PeerId& from, MixTag tag, uint64_t number, uint32_t chunk) {
  MixArrived arrived;
  arrived.from = from;
  arrived.tag = tag;
  arrived.sequence = number;
  arrived.chunk = chunk;
  return arrived;
}

// One end, with one slot each way unless the test says otherwise.
struct End {
  explicit End(const PeerId& self, size_t slots = 1) : id(self), pairs(100) {
    UsePairs use{.model = Region::kExtra0, .own = {}, .served = {}, .neighbours = {}};
    for (const PeerId& peer : {kA, kB, kC, kD})
      if (peer != self) use.neighbours.push_back(peer);
    for (size_t i = 0; i < slots; ++i) {
      use.own.push_back(ExtraRegion(1 + i));
      use.served.push_back(ExtraRegion(1 + slots + i));
    }
    pairs.Reset(use, kElements, kChunk, WireFormat::kFloat32);
    pairs.Open(now, out);
  }

  // The one message that was to be sent, which has left by then.
  PairExchange::SendModel Sent() {
    EXPECT_EQ(out.sends.size(), 1u);
    if (out.sends.empty()) return {};
    const PairExchange::SendModel send = out.sends.front();
    out = {};
    pairs.OnSent(now, send.to, send.tag, send.number);
    return send;
  }
  std::vector<PairWord> Said() {
    std::vector<PairWord> words;
    for (const PairExchange::Say& say : std::exchange(out.says, {})) words.push_back(say.word);
    return words;
  }
  void Push(const PeerId& peer) {
    pairs.Push(peer);
    pairs.Start(now, out);
  }
  // True: it has a place.
  bool Take(MixArrived chunk, bool sound = true) {
    const auto place = pairs.Place(chunk);
    chunk.stored = place.has_value() && sound;
    pairs.OnChunk(now, chunk, out);
    return place.has_value();
  }
  // All chunks of a message, but for `lost`.
  void Take(const PeerId& from, const PairExchange::SendModel& message, int lost = -1) {
    for (uint32_t chunk = 0; chunk < message.chunks; ++chunk)
      if (static_cast<int>(chunk) != lost) Take(Chunk(from, message.tag, message.number, chunk));
  }
  void TakeWhole() {
    const auto region = pairs.TakeWhole();
    ASSERT_TRUE(region);
    pairs.Reply(now, *region, out);
  }
  void Wait(Duration time) {
    now = now + time;
    pairs.OnTimer(now, out);
  }
  const PairExchange::Counters& counters() const { return pairs.counters(); }

  PeerId id;
  PairExchange pairs;
  PairExchange::Out out;
  Time now = Time::FromNanoseconds(1);
};

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

TEST(PairExchangeTest, WhatIsLostIsSentAgain) {
  End a(kA), b(kB);
  a.Push(kB);
  const auto push = a.Sent();
  b.Take(kA, push, 0);
  a.Wait(kLong);
  const auto again = a.Sent();
  EXPECT_EQ(again.number, push.number);
  b.Take(kA, again);
  EXPECT_EQ(b.counters().repeated, 2u);
  b.TakeWhole();
  const auto reply = b.Sent();
  a.Take(kB, reply, 2);
  b.Wait(kLong);
  a.Take(kB, b.Sent());
  ASSERT_TRUE(a.out.replied);
  EXPECT_EQ(a.out.replied->took, Duration()) << "nobody knows which of the two it answered";
  // The word is lost; a late "go", or the reply once more, does nothing but repeat it.
  a.out = {};
  a.pairs.OnWord(a.now, kB, {Kind::kGo, push.number}, a.out);
  EXPECT_EQ(a.Said(), (std::vector<PairWord>{{Kind::kDone, push.number}}));
  b.Wait(kLong);
  a.Take(kB, b.Sent());
  EXPECT_FALSE(a.out.replied);
  EXPECT_EQ(a.Said(), (std::vector<PairWord>{{Kind::kDone, push.number}}));
  EXPECT_EQ(a.counters().resent, 1u);
  EXPECT_EQ(b.counters().resent, 2u);
}

TEST(PairExchangeTest, NothingIsLateBeforeItHasLeft) {
  End a(kA);
  a.Push(kB);
  const auto push = a.out.sends.at(0);
  a.out = {};
  a.Wait(kLong);
  a.Wait(kLong);
  EXPECT_TRUE(a.out.sends.empty());
  a.pairs.OnSent(a.now, push.to, push.tag, push.number);
  a.Wait(kLong);
  EXPECT_EQ(a.Sent().number, push.number);
}

TEST(PairExchangeTest, WhoIsToldToWaitSendsLater) {
  End a(kA), told(kA);
  for (End* end : {&a, &told}) end->Push(kB);
  a.Sent();
  const auto push = told.Sent();
  told.pairs.OnWord(told.now, kB, {Kind::kWait, push.number}, told.out);
  EXPECT_GT(told.pairs.NextDeadline(), a.pairs.NextDeadline());
  told.Wait(kLong);
  EXPECT_EQ(told.Sent().number, push.number) << "the word that ends it was lost";
}

TEST(PairExchangeTest, ASilentEndIsGivenUpAndTold) {
  End a(kA);
  a.Push(kB);
  const auto push = a.Sent();
  for (int i = 0; i < 3; ++i) {
    a.Wait(kLong);
    a.Sent();
  }
  a.Wait(kLong);
  EXPECT_TRUE(a.out.sends.empty());
  EXPECT_EQ(a.Said(), (std::vector<PairWord>{{Kind::kGone, push.number}}));
  EXPECT_EQ(a.counters().aborted, 1u);
  EXPECT_TRUE(a.pairs.idle());
  // The other end had applied it: it hears that it did so alone.
  End b(kB);
  b.Take(kA, push);
  b.TakeWhole();
  const auto reply = b.Sent();
  a.Take(kB, reply);
  EXPECT_FALSE(a.out.replied);
  EXPECT_EQ(a.Said(), (std::vector<PairWord>{{Kind::kGone, push.number}}));
  b.pairs.OnWord(b.now, kA, {Kind::kGone, push.number}, b.out);
  EXPECT_EQ(b.counters().one_sided, 1u);
  EXPECT_TRUE(b.pairs.idle());
}

TEST(PairExchangeTest, AReplyThatNobodyAcknowledgesMayBeOneSided) {
  End b(kB);
  b.Take(kA, {kB, kPairTag, 7, kChunks});
  b.TakeWhole();
  b.Sent();
  for (int i = 0; i < 3; ++i) {
    b.Wait(kLong);
    b.Sent();
  }
  b.Wait(kLong);
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kGone, 7}}));
  EXPECT_EQ(b.counters().one_sided, 1u);
  // Never twice: its end is told instead.
  EXPECT_FALSE(b.Take(Chunk(kA, kPairTag, 7, 0)));
  EXPECT_EQ(b.Said(), (std::vector<PairWord>{{Kind::kGone, 7}}));
  End a(kA);
  a.Push(kB);
  const auto push = a.Sent();
  a.pairs.OnWord(a.now, kB, {Kind::kGone, push.number}, a.out);
  EXPECT_EQ(a.counters().aborted, 1u);
  EXPECT_TRUE(a.pairs.idle());
}

TEST(PairExchangeTest, ANewerPushAcknowledgesTheReply) {
  End b(kB);
  b.Take(kA, {kB, kPairTag, 7, kChunks});
  b.TakeWhole();
  b.Sent();
  b.Take(kA, {kB, kPairTag, 8, kChunks});
  EXPECT_TRUE(b.out.whole);
  b.out = {};
  // A late copy of the older is none of the newer, and is not applied again.
  EXPECT_FALSE(b.Take(Chunk(kA, kPairTag, 7, 0)));
  EXPECT_EQ(b.counters().repeated, 1u);
  b.TakeWhole();
  EXPECT_EQ(b.Sent().number, 8u);
  EXPECT_EQ(b.counters().committed, 2u);
  EXPECT_EQ(b.counters().one_sided, 0u);
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
