// Frames of a step between neighbours: exactly once, whatever the network does.
#include "worker/core/power/power_exchange.h"

#include <gtest/gtest.h>

#include <string>

#include "base/digest.h"
#include "worker/core/power/power_frames.h"
#include "worker/core/power/power_layout.h"
#include "worker/core/vector/tensor_view.h"

namespace crowdsurf::worker {
namespace {

using Kind = EdgeWord::Kind;

PeerId IdOf(int i) { return *PeerId::From(Sha256(AsBytes("peer" + std::to_string(i))).view()); }

std::shared_ptr<const PowerFrames> Frames() {  // 12 + 12 values, 12 + 9: three chunks of ten
  const TensorViews tensors{{0, {12, 9}}};
  return std::make_shared<const PowerFrames>(std::make_shared<const PowerLayout>(tensors, 108, 1),
                                             0);
}

// Worker 0 with two neighbours, 1 and 2.
class PowerExchangeTest : public testing::Test {
 protected:
  PowerExchangeTest() {
    exchange_.Reset({.self = IdOf(0),
                     .ends = {{IdOf(1), Region::kExtra0, 0.3}, {IdOf(2), Region::kExtra1, 0.3}},
                     .frames = Frames(),
                     .wire = WireFormat::kFloat32},
                    10);
  }

  PowerExchange::Out Begin() {
    PowerExchange::Out out;
    exchange_.Begin(now_, out);
    return out;
  }
  MixArrived Chunk(int from, uint64_t step, uint32_t chunk, bool stored = true) {
    return {.from = IdOf(from),
            .instance = {},
            .tag = PowerFrames::TagOf(step),
            .sequence = step,
            .count = 1,
            .chunk = chunk,
            .stored = stored};
  }
  void Frame(int from, uint64_t step) {
    for (uint32_t chunk = 0; chunk < 3; ++chunk) exchange_.OnChunk(now_, Chunk(from, step, chunk));
  }
  PowerExchange::Out Word(int from, Kind kind, uint64_t step) {
    PowerExchange::Out out;
    exchange_.OnWord(now_, IdOf(from), {kind, step}, out);
    return out;
  }
  PowerExchange::Out Wait() {  // until the next deadline
    now_ = exchange_.NextDeadline();
    PowerExchange::Out out;
    exchange_.OnTimer(now_, out);
    return out;
  }
  void Leave(uint64_t step) {
    exchange_.OnSent(IdOf(1), step);
    exchange_.OnSent(IdOf(2), step);
  }

  PowerExchange exchange_;
  Time now_ = Time::FromNanoseconds(1);
};

TEST_F(PowerExchangeTest, AStepEndsOnceWhenAllChunksOfAllNeighboursAreHere) {
  const auto out = Begin();
  ASSERT_EQ(out.sends.size(), 2u);
  EXPECT_EQ(out.sends[0].chunks, 3u);
  Frame(1, 1);
  exchange_.OnChunk(now_, Chunk(2, 1, 0));
  exchange_.OnChunk(now_, Chunk(2, 1, 2));
  exchange_.OnChunk(now_, Chunk(2, 1, 2));  // again
  EXPECT_FALSE(exchange_.TakeDone());
  exchange_.OnChunk(now_, Chunk(2, 1, 1));
  const auto done = exchange_.TakeDone();
  ASSERT_TRUE(done);
  EXPECT_EQ(done->size(), 2u);
  EXPECT_FALSE(exchange_.TakeDone());
  EXPECT_EQ(exchange_.counters().taken, 6u);
  EXPECT_EQ(exchange_.counters().repeated, 1u);
  EXPECT_TRUE(exchange_.NextDeadline().infinite());
}

TEST_F(PowerExchangeTest, ANeighbourMayBeOneStepAheadAndNoFurther) {
  Frame(1, 1);  // before this worker began
  EXPECT_FALSE(exchange_.Place(Chunk(1, 2, 0)));
  Begin();
  Frame(1, 2);
  EXPECT_FALSE(exchange_.Place(Chunk(1, 3, 0)));
  exchange_.OnChunk(now_, Chunk(1, 3, 0));
  EXPECT_EQ(exchange_.counters().strange, 1u);
  for (const uint64_t whole : {1, 2}) exchange_.OnChunk(now_, Chunk(1, whole, 0));
  EXPECT_EQ(exchange_.counters().stale, 2u);
  Frame(2, 1);
  ASSERT_TRUE(exchange_.TakeDone());
  // The frame that came early lies apart from that of the step that is over.
  const auto early = exchange_.Place(Chunk(2, 2, 0));
  ASSERT_TRUE(early);
  EXPECT_GE(early->begin, Frames()->Arriving(1).count);
  Begin();
  Frame(2, 2);
  EXPECT_TRUE(exchange_.TakeDone());
}

TEST_F(PowerExchangeTest, AFrameMayOvertakeTheOneBeforeIt) {
  Begin();
  Frame(2, 1);
  Frame(1, 2);
  EXPECT_FALSE(exchange_.TakeDone());
  Frame(1, 1);
  ASSERT_TRUE(exchange_.TakeDone());
  Begin();
  Frame(2, 2);
  EXPECT_TRUE(exchange_.TakeDone());
  EXPECT_EQ(exchange_.counters().taken, 12u);
}

TEST_F(PowerExchangeTest, TheEndOfAViewEndsAStepWithThoseWhoseFramesAreHere) {
  EXPECT_FALSE(exchange_.TakeLast()) << "no step is open";
  Frame(2, 1);  // before this worker began
  EXPECT_FALSE(exchange_.TakeLast());
  Begin();
  exchange_.OnChunk(now_, Chunk(1, 1, 0));  // not whole
  const auto last = exchange_.TakeLast();
  ASSERT_TRUE(last);
  EXPECT_EQ(*last, std::vector<PeerId>{IdOf(2)});
  EXPECT_FALSE(exchange_.TakeLast()) << "once";
  EXPECT_TRUE(exchange_.NextDeadline().infinite()) << "nothing is waited for";
}

TEST_F(PowerExchangeTest, ANeighbourThatIsDownDoesNotEndTheLastStep) {
  Begin();
  Frame(1, 1);
  exchange_.OnPeerDown(IdOf(1));
  EXPECT_TRUE(exchange_.TakeLast().value().empty());
}

TEST_F(PowerExchangeTest, WhatHasNoPlaceIsRefusedAndCounted) {
  Begin();
  EXPECT_FALSE(exchange_.Place(Chunk(3, 1, 0)));  // no neighbour
  EXPECT_FALSE(exchange_.Place(Chunk(1, 1, 3)));  // no chunk
  MixArrived sum = Chunk(1, 1, 0);
  sum.count = 2;
  EXPECT_FALSE(exchange_.Place(sum));
  MixArrived tag = Chunk(1, 1, 0);
  tag.tag = PowerFrames::TagOf(2);
  EXPECT_FALSE(exchange_.Place(tag));
  for (const MixArrived& chunk : {Chunk(3, 1, 0), Chunk(1, 1, 3), sum, tag})
    exchange_.OnChunk(now_, chunk);
  EXPECT_EQ(exchange_.counters().strange, 4u);
  exchange_.OnChunk(now_, Chunk(1, 1, 0, false));
  EXPECT_EQ(exchange_.counters().not_finite, 1u);
  EXPECT_TRUE(exchange_.Place(Chunk(1, 1, 0)));  // it may come again, finite
}

TEST_F(PowerExchangeTest, AMissingFrameIsAskedForMoreAndMoreSeldom) {
  Begin();
  Frame(2, 1);
  const Time began = now_;
  std::vector<int64_t> asked;  // milliseconds
  for (int i = 0; i < 4; ++i) {
    const auto out = Wait();
    ASSERT_EQ(out.says.size(), 1u);
    EXPECT_EQ(out.says[0].to, IdOf(1));
    EXPECT_EQ(out.says[0].word, (EdgeWord{Kind::kMissing, 1}));
    EXPECT_TRUE(out.sends.empty());
    asked.push_back((now_ - began).nanoseconds() / 1'000'000);
    Word(1, Kind::kNotYet, 1);
  }
  EXPECT_EQ(asked, (std::vector<int64_t>{500, 1500, 3500, 7500}));
}

TEST_F(PowerExchangeTest, WhoAsksGetsTheFrameOfThisStepOrOfTheLast) {
  Begin();
  auto out = Word(1, Kind::kMissing, 1);  // still on its way
  ASSERT_EQ(out.says.size(), 1u);
  EXPECT_EQ(out.says[0].word, (EdgeWord{Kind::kNotYet, 1}));
  Leave(1);
  out = Word(1, Kind::kMissing, 1);
  ASSERT_EQ(out.sends.size(), 1u);
  EXPECT_EQ(out.sends[0].step, 1u);
  Leave(1);
  Frame(1, 1);
  Frame(2, 1);
  ASSERT_TRUE(exchange_.TakeDone());
  EXPECT_EQ(Word(1, Kind::kMissing, 2).says.at(0).word, (EdgeWord{Kind::kNotYet, 2}));
  Begin();
  out = Word(1, Kind::kMissing, 1);
  ASSERT_EQ(out.sends.size(), 1u);
  EXPECT_EQ(out.sends[0].step, 1u);
  // Both frames lie there, apart from each other.
  const auto last = exchange_.Describe(IdOf(1), 1, 0), now = exchange_.Describe(IdOf(1), 2, 0);
  ASSERT_TRUE(last && now);
  EXPECT_NE(last->begin, now->begin);
  EXPECT_FALSE(exchange_.Describe(IdOf(1), 3, 0));
  EXPECT_FALSE(exchange_.Describe(IdOf(1), 1, 3));
  EXPECT_FALSE(exchange_.Describe(IdOf(3), 1, 0));
  EXPECT_EQ(exchange_.counters().resent, 2u);
}

TEST_F(PowerExchangeTest, ASlowNeighbourIsWaitedForAndASilentOneIsLeftOut) {
  Begin();
  Frame(2, 1);
  for (int i = 0; i < 50; ++i) {  // more than three minutes
    Wait();
    Word(1, Kind::kNotYet, 1);
  }
  EXPECT_FALSE(exchange_.TakeDone());
  const Time silent = now_;
  PowerExchange::Out out;
  while (out.says.empty() || out.says[0].word.kind != Kind::kCut) out = Wait();
  EXPECT_GE(now_ - silent, PowerExchange::kSilence);
  const auto done = exchange_.TakeDone();
  ASSERT_TRUE(done);
  EXPECT_EQ(*done, std::vector<PeerId>{IdOf(2)});
  EXPECT_EQ(exchange_.counters().cut, 1u);
  // It is left out until the view is renewed, and told so.
  EXPECT_EQ(Begin().sends.size(), 1u);
  EXPECT_FALSE(exchange_.Place(Chunk(1, 1, 0)));
  EXPECT_EQ(Word(1, Kind::kMissing, 1).says.at(0).word.kind, Kind::kCut);
}

TEST_F(PowerExchangeTest, ADeathEndsTheWaitAndIsCountedWhereThisEndWasAhead) {
  Begin();
  Frame(2, 1);
  exchange_.OnPeerDown(IdOf(1));  // its first frame never came: nobody has applied anything
  EXPECT_EQ(exchange_.counters().one_sided, 0u);
  EXPECT_EQ(exchange_.TakeDone(), std::vector<PeerId>{IdOf(2)});
  Begin();
  Frame(2, 2);
  ASSERT_TRUE(exchange_.TakeDone());
  exchange_.OnPeerDown(IdOf(2));  // perhaps without the update that this end has applied
  exchange_.OnPeerDown(IdOf(2));
  EXPECT_EQ(exchange_.counters().one_sided, 1u);
  Begin();
  EXPECT_EQ(exchange_.TakeDone(), std::vector<PeerId>());
  EXPECT_EQ(exchange_.counters().cut, 0u);
}

}  // namespace
}  // namespace crowdsurf::worker
