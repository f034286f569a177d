// What RelaySum says of the age of models, and what it makes of what others say.
#include "worker/core/strategy/relay_sum.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {
namespace {

constexpr uint32_t kMembers = 4;
constexpr uint32_t kElements = 8;
constexpr uint32_t kChunk = 4;

PeerId IdOf(int member) {
  return *PeerId::From(Sha256(AsBytes("member" + std::to_string(member))).view());
}

// The second of a chain of four: its edges lead to one member, and to two.
class RelaySumAgeTest : public testing::Test {
 protected:
  RelaySumAgeTest() {
    AveragingConfig config;
    config.strategy = StrategyKind::kRelaySum;
    config.mixing.graph = GraphKind::kChain;
    config.interval = 1;
    config.mixing.max_lag = 1000;  // nobody waits for anybody here
    std::vector<Member> members;
    for (int i = 0; i < static_cast<int>(kMembers); ++i)
      members.push_back({.id = IdOf(i), .joined_unix_ms = i});
    const View first = FirstView(members.front(), {.config = config});
    const View view = NextView(Seating(first, ViewHash()), {}, members, {.config = config});
    strategy_.SetVector(kElements, edges_);
    StrategyActions actions;
    strategy_.OnView(now_, view, IdOf(1), actions);
    for (const StrategyAction& action : actions)
      if (const auto* use = std::get_if<UseEdges>(&action))
        edges_.Reset(use->links, kMembers, kChunk, use->wire, use->order);
    Tell(PaceTold{});
    Tell(MixingStarted{Region::kInboxB});
  }

  StrategyActions Tell(const Event& event) {
    StrategyActions actions;
    strategy_.OnEvent(now_, event, actions);
    return actions;
  }
  EdgeMailbox::Taken Arrive(int from, uint64_t sequence, uint32_t count, int64_t lag,
                            uint32_t chunk) {
    const MixArrived arrived{.from = IdOf(from),
                             .instance = {},
                             .tag = kFirstEdgeTag,
                             .sequence = sequence,
                             .count = count,
                             .lag = lag,
                             .chunk = chunk,
                             .stored = true};
    return edges_.OnChunk(arrived);
  }
  void ArriveWhole(int from, uint64_t sequence, uint32_t count, int64_t lag) {
    for (uint32_t chunk = 0; chunk < kElements / kChunk; ++chunk)
      EXPECT_EQ(Arrive(from, sequence, count, lag, chunk), EdgeMailbox::Taken::kTaken);
  }
  void Average() { Tell(SnapshotTaken{++step_, 0}); }
  // What the factor is when it has stopped changing.
  double FactorAfter(const ModelAge& total) {
    Tell(AgesCounted{AveragingId(++counts_), total});
    for (int step = 0; step < 8; ++step) Average();
    return strategy_.lr_scale();
  }
  ModelAge All(double steps) const {
    return {.steps = steps, .members = kMembers, .agreed = strategy_.age().agreed};
  }

  RelaySum strategy_;
  EdgeMailbox edges_;
  const Time now_ = Time::FromNanoseconds(1);
  uint64_t step_ = 0;
  uint64_t counts_ = 1;
};

TEST_F(RelaySumAgeTest, NothingIsSaidBeforeAllModelsAreThere) {
  Average();
  ArriveWhole(0, 1, 1, 0);
  Average();
  EXPECT_EQ(strategy_.age().members, 0U);
  ArriveWhole(2, 1, 2, 3);
  Average();
  EXPECT_EQ(strategy_.age().members, 1U);
}

// At step 5: the first member's model is of its step 2; the third's of its step 4, and the models
// of its message, two, are 3 steps behind it in all.
TEST_F(RelaySumAgeTest, TheShareIsTheLagOfAllModels) {
  for (int i = 0; i < 4; ++i) Average();
  ArriveWhole(0, 2, 1, 0);
  ArriveWhole(2, 4, 2, 3);
  Average();
  const double lag = 3 + (2 * 1 + 3);
  EXPECT_DOUBLE_EQ(strategy_.age().steps, lag / (kMembers * kMembers));
}

// Half of the vector is a step older.
TEST_F(RelaySumAgeTest, EachChunkCountsByItsLength) {
  for (int i = 0; i < 4; ++i) Average();
  ArriveWhole(0, 4, 1, 0);
  ArriveWhole(2, 4, 2, 0);
  EXPECT_EQ(Arrive(2, 5, 2, 0, 1), EdgeMailbox::Taken::kTaken);
  Average();
  const double lag = 1 + 2 * 0.5;
  EXPECT_DOUBLE_EQ(strategy_.age().steps, lag / (kMembers * kMembers));
}

TEST_F(RelaySumAgeTest, AMessageCarriesTheLagOfWhatIsInIt) {
  ArriveWhole(0, 7, 1, 0);
  ArriveWhole(2, 4, 2, 3);
  const auto to_first = edges_.Find(IdOf(0), kFirstEdgeTag).value();
  const MixChunk chunk = edges_.Describe(to_first, 0, Region::kSpare, EdgeSum::kWithOthers, 9);
  EXPECT_EQ(chunk.count, 3U);
  EXPECT_EQ(chunk.lag, 2 * (9 - 4) + 3);
  const auto to_third = edges_.Find(IdOf(2), kFirstEdgeTag).value();
  EXPECT_EQ(edges_.Describe(to_third, 0, Region::kSpare, EdgeSum::kWithOthers, 9).lag, 9 - 7);
  EXPECT_EQ(edges_.Describe(to_third, 0, Region::kSpare, EdgeSum::kOwn, 9).lag, 0);
}

TEST_F(RelaySumAgeTest, WhatNoSumCouldHoldIsStrange) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t lag : {kMin, kMax, EdgeMailbox::kMaxLag + 1, -EdgeMailbox::kMaxLag - 1})
    EXPECT_EQ(Arrive(0, 1, 1, lag, 0), EdgeMailbox::Taken::kStrange) << lag;
  for (const uint64_t sequence : {EdgeMailbox::kMaxSequence + 1, UINT64_MAX})
    EXPECT_EQ(Arrive(0, sequence, 1, 0, 0), EdgeMailbox::Taken::kStrange) << sequence;
  EXPECT_EQ(Arrive(0, EdgeMailbox::kMaxSequence, 1, EdgeMailbox::kMaxLag, 0),
            EdgeMailbox::Taken::kTaken);
}

// Else a liar's neighbours would be refused by theirs, who did not lie.
TEST_F(RelaySumAgeTest, AMessageWithALiarsLagIsInBounds) {
  const auto to_first = edges_.Find(IdOf(0), kFirstEdgeTag).value();
  const auto lag = [&](uint64_t sequence) {
    return edges_.Describe(to_first, 0, Region::kSpare, EdgeSum::kWithOthers, sequence).lag;
  };
  ArriveWhole(2, 3, 2, -EdgeMailbox::kMaxLag);
  EXPECT_EQ(lag(1), -EdgeMailbox::kMaxLag);
  ArriveWhole(2, 4, 2, EdgeMailbox::kMaxLag);
  EXPECT_EQ(lag(9), EdgeMailbox::kMaxLag);
}

TEST_F(RelaySumAgeTest, AShareThatALiarMadeIsInBounds) {
  ArriveWhole(0, 1, 1, EdgeMailbox::kMaxLag);
  ArriveWhole(2, 1, 2, EdgeMailbox::kMaxLag);
  Average();
  const ModelAge age = strategy_.age();
  EXPECT_TRUE(IsValid(age));
  ModelAge sum;
  for (uint32_t i = 0; i < kMaxNodes; ++i) Add(age, sum);
  EXPECT_TRUE(IsValid(sum));
  for (const double lie : {-kMaxModelAge, kMaxModelAge}) {
    sum = {};
    for (int i = 0; i < 2; ++i) Add({.steps = lie, .members = 1, .agreed = {}}, sum);
    EXPECT_TRUE(IsValid(sum)) << lie;
  }
}

TEST_F(RelaySumAgeTest, TheFactorIsOneUntilAllHaveMeasured) {
  EXPECT_EQ(FactorAfter({.steps = 1, .members = kMembers - 1, .agreed = {}}), 1);
  EXPECT_EQ(FactorAfter(All(0.5)), 1.5);
}

TEST_F(RelaySumAgeTest, ANearFactorChangesNothing) {
  EXPECT_EQ(FactorAfter(All(1)), 2);
  EXPECT_EQ(FactorAfter(All(1.15)), 2);
  EXPECT_EQ(FactorAfter(All(0.85)), 2);
  EXPECT_EQ(FactorAfter(All(1.25)), 2.25);
}

TEST_F(RelaySumAgeTest, TheFactorOfTheOthersIsTaken) {
  ModelAge total{.steps = 0, .members = 2, .agreed = {AveragingId(9), 1.75}};
  EXPECT_EQ(FactorAfter(total), 1.75);
  EXPECT_EQ(strategy_.age().agreed, (AgreedScale{AveragingId(counts_), 1.75}));
}

// A chain of four has 1.25 hops between two members in the mean, itself among them.
TEST_F(RelaySumAgeTest, WhateverIsSaidTheFactorIsInBounds) {
  EXPECT_EQ(FactorAfter(All(1e9)), 2.25);
  EXPECT_EQ(FactorAfter(All(-1e9)), 1);
  ModelAge total{.steps = 0, .members = 1, .agreed = {AveragingId(9), 1e9}};
  EXPECT_EQ(FactorAfter(total), 2.25);
  total.agreed.scale = 1e-9;
  EXPECT_EQ(FactorAfter(total), 1);
}

}  // namespace
}  // namespace crowdsurf::worker
