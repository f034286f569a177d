// The transport of pairs against a script: messages that are lost, late, or never answered.
#include "tests/unit/worker_core/strategy/pair_end.h"

namespace crowdsurf::worker {
namespace {

using End = PairEnd;
using Kind = PairWord::Kind;

// It has a push of number 7, and has sent the reply.
void ReplyToSeventh(End& end) {
  end.Take(kA, {kB, kPairTag, 7, kChunks});
  end.TakeWhole();
  end.Sent();
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
  ReplyToSeventh(b);
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
  ReplyToSeventh(b);
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

}  // namespace
}  // namespace crowdsurf::worker
