// What a vector is worth travels with it: stakes of members and of their stand-ins in one round,
// and decided values that nobody is left to give.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/digest.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round.h"

namespace crowdsurf::worker {
namespace {

constexpr int kSpeaker = 9;
const Stake kOwn{20, 20, {AveragingId(3), 100}};
const Stake kSpoken{16, 16, {AveragingId(3), 100}};

// Two members, two chunks, one each; a stand-in for rank 1.
RoundSpec Spec() {
  RoundSpec spec;
  spec.cells = {{PeerAt(0), {}}, {PeerAt(1), {PeerAt(kSpeaker)}}};
  spec.witnesses = {PeerAt(0), PeerAt(1)};
  spec.chunks = {{0, 0, 1}, {1, 1, 1}};
  spec.stake = {5, 5, {AveragingId(3), 100}};
  return spec;
}

template <class Body>
size_t Count(const RoundActions& actions) {
  size_t count = 0;
  for (const RoundAction& action : actions) {
    const auto* send = std::get_if<SendFrame>(&action);
    count += send != nullptr && std::holds_alternative<Body>(send->frame.body) ? 1 : 0;
  }
  return count;
}

class RoundStakes : public testing::Test {
 protected:
  void Say(int from, FrameBody body) {
    round_.OnFrame(PeerAt(static_cast<size_t>(from)), {Spec().instance, std::move(body)}, out_);
  }
  void SayReady(const Stake& stake) {
    Say(1, Ready{stake, {}, MemberListHash(Spec().cells), PartsHash(Spec().chunks)});
  }
  Round round_{Spec()};
  RoundActions out_;
};

// A member that opens a round anew has nothing of what it was sent: READY and inputs come once
// more, once.
TEST_F(RoundStakes, AMemberThatBeginsAnewIsSentEverythingOnceMore) {
  const auto inputs = [&] {
    return std::count_if(out_.begin(), out_.end(), [](const RoundAction& action) {
      return std::holds_alternative<SendInput>(action);
    });
  };
  round_.Start(out_);
  SayReady(kOwn);
  EXPECT_EQ(Count<Ready>(out_), 1U);
  EXPECT_EQ(inputs(), 1);
  SayReady(kOwn);  // a copy
  EXPECT_EQ(inputs(), 1);
  const Ready again{kOwn, {}, MemberListHash(Spec().cells), PartsHash(Spec().chunks), true};
  Say(1, again);
  EXPECT_EQ(Count<Ready>(out_), 2U);
  EXPECT_EQ(inputs(), 2);
  Say(1, again);
  EXPECT_EQ(inputs(), 2);
}

TEST_F(RoundStakes, ValuesOfAMemberDoNotGoWithWhatAStandInSaidOfIt) {
  round_.Start(out_);
  Say(kSpeaker, Speak{1, kSpoken, {}});
  EXPECT_FALSE(round_.OnInput(PeerAt(1), 1, ChunkIndex(0), 0, out_))
      << "its own word is not here yet";
  SayReady(kOwn);
  EXPECT_FALSE(round_.OnInput(PeerAt(1), 1, ChunkIndex(0), 0, out_))
      << "it is worth something else";
}

TEST_F(RoundStakes, ValuesThatOvertookAnEqualWordAreAskedForAgain) {
  round_.Start(out_);
  Say(kSpeaker, Speak{1, kOwn, {}});
  EXPECT_FALSE(round_.OnInput(PeerAt(1), 1, ChunkIndex(0), 0, out_));
  out_.clear();
  SayReady(kOwn);
  EXPECT_EQ(Count<Ask>(out_), 1U);
  EXPECT_TRUE(round_.OnInput(PeerAt(1), 1, ChunkIndex(0), 0, out_));
}

TEST_F(RoundStakes, WhatIsSaidBetweenStatusAndPlanWaits) {
  round_.Start(out_);
  Say(1, BallotOpen{2, false, 0, {}});
  ASSERT_EQ(Count<StatusFrame>(out_), 1U);
  Say(kSpeaker, Speak{1, kSpoken, {}});
  Plan plan;
  plan.ballot = 2;
  plan.members = RankSet::Of(0, 1);
  plan.stakes = {{0, Spec().stake}, {1, kOwn}};
  plan.chunks = {{0, 0, {}, {}}, {0, 1, {}, {}}};
  Say(1, plan);
  EXPECT_TRUE(round_.OnInput(PeerAt(1), 1, ChunkIndex(0), 0, out_));
  const auto* fold = std::get_if<FoldChunk>(&out_.back());
  ASSERT_NE(fold, nullptr);
  EXPECT_EQ(fold->weights, (std::vector<double>{5, 20}));
}

TEST(RoundPlanStakes, AMemberOfThePlanIsWorthWhatItSaysItself) {
  const RoundSpec spec = Spec();
  PlanQuestion question;
  question.spec = &spec;
  question.ballot = 3;
  StatusFrame first;
  first.held = {{0, RankSet::FromBits(3), 77}, {}};  // folded with what the stand-in said
  first.served = {ChunkIndex(0)};
  first.stakes = {{0, spec.stake}, {1, kSpoken}};
  StatusFrame second;
  second.held.resize(2);
  second.stakes = {{1, kOwn}};
  question.statuses = {{0, first}, {1, second}};
  const auto plan = MakePlan(question);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->stakes.at(1), kOwn);
  EXPECT_EQ(plan->excluded, RankSet::FromBits(0));
  for (const PlanChunk& chunk : plan->chunks) {
    EXPECT_EQ(chunk.holders, RankSet::FromBits(0))
        << "a result of the other stake must not be kept";
    EXPECT_EQ(chunk.assigned, 3);
  }
}

TEST(RoundPlanStakes, OfAnOutsiderInDisputeNothingIsTaken) {
  const RoundSpec spec = Spec();
  PlanQuestion question;
  question.spec = &spec;
  question.ballot = 3;
  StatusFrame status;
  status.held.resize(2);
  status.stakes = {{0, spec.stake}, {2, kSpoken}};
  question.statuses[0] = status;
  status.stakes = {{1, kOwn}, {2, kOwn}};
  question.statuses[1] = status;
  const auto plan = MakePlan(question);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->excluded, RankSet::Of(2));
}

// Rank 1 served its chunk and died; its READY came to nobody in time. A value with a contributor
// whose stake nobody knows could never be decided.
TEST(RoundPlanStakes, AResultOfAContributorWhoseStakeNobodyKnowsIsReducedAgain) {
  const RoundSpec spec = Spec();
  PlanQuestion question;
  question.spec = &spec;
  question.ballot = 3;
  StatusFrame status;
  status.held = {{0, RankSet::FromBits(1), 77}, {0, RankSet::FromBits(3), 78}};
  status.stakes = {{0, spec.stake}};
  question.statuses[0] = status;
  const auto plan = MakePlan(question);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->chunks[0].holders, RankSet::FromBits(1));
  EXPECT_EQ(plan->chunks[1].holders, RankSet::FromBits(0));
  EXPECT_EQ(plan->chunks[1].assigned, 3);
}

// After the last plan two members heard stand-ins of rank 2 that do not agree. Each folded its
// chunk with the one it had heard, and both hold both chunks: what they have is not one value.
TEST(RoundPlanStakes, ACompleteBallotWithTwoStakesOfOneRankIsNotKept) {
  RoundSpec spec = Spec();
  spec.cells.push_back({std::nullopt, {PeerAt(kSpeaker), PeerAt(kSpeaker + 1)}});
  PlanQuestion question;
  question.spec = &spec;
  question.ballot = 4;
  StatusFrame status;
  status.complete = 3;
  status.held = {{0, RankSet::FromBits(7), 77}, {0, RankSet::FromBits(7), 78}};
  status.stakes = {{0, spec.stake}, {1, kOwn}, {2, kSpoken}};
  question.statuses[0] = status;
  status.stakes[2].holds = Sha256(AsBytes("another value of the same weight"));
  question.statuses[1] = status;
  const auto plan = MakePlan(question);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->excluded, RankSet::Of(2));
  for (const PlanChunk& chunk : plan->chunks) EXPECT_EQ(chunk.assigned, 4);
  question.statuses[1].stakes = question.statuses[0].stakes;
  const auto kept = MakePlan(question);
  ASSERT_TRUE(kept.has_value());
  for (const PlanChunk& chunk : kept->chunks) EXPECT_EQ(chunk.holders, RankSet::FromBits(3));
}

// An applied value is decided, so a branch keeps it, although its members differ about a stake of a
// contributor: without that word the ballot looks undecided, and the chunks are reduced again.
TEST(RoundPlanStakes, AnAppliedValueIsKeptThoughAStakeInItIsDisputed) {
  RoundSpec spec = Spec();
  spec.cells.push_back({std::nullopt, {PeerAt(kSpeaker), PeerAt(kSpeaker + 1)}});
  PlanQuestion question;
  question.spec = &spec;
  question.ballot = 4;
  question.branch = true;
  StatusFrame applied;
  applied.branch = true;
  applied.complete = 0;
  applied.held = {{0, RankSet::FromBits(7), 77}, {0, RankSet::FromBits(7), 78}};
  applied.stakes = {{0, spec.stake}, {1, kOwn}, {2, kSpoken}};
  StatusFrame other;
  other.branch = true;
  other.held.resize(2);
  other.stakes = {{1, kOwn}, {2, kOwn}};
  question.statuses = {{0, applied}, {1, other}};
  const auto undecided = MakePlan(question);
  ASSERT_TRUE(undecided.has_value());
  for (const PlanChunk& chunk : undecided->chunks) EXPECT_EQ(chunk.holders, RankSet::FromBits(0));
  question.statuses[0].applied = true;
  const auto plan = MakePlan(question);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->stakes.at(2), kSpoken);
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(plan->chunks[c].holders, RankSet::FromBits(1));
    EXPECT_EQ(plan->chunks[c].value, applied.held[c]);
  }
}

// The value is decided, its only holder is rank 1.
class RoundOrphan : public RoundStakes {
 protected:
  void SetUp() override {
    round_.Start(out_);
    Decided decided{.ballot = 2, .branch = false, .held = {}};
    decided.held.members = RankSet::Of(1);
    decided.held.value.chunks = {{0, RankSet::FromBits(2), 7}, {0, RankSet::FromBits(2), 8}};
    decided.held.value.stakes = {{}, kOwn};
    Say(1, decided);
    ASSERT_EQ(round_.phase(), Round::Phase::kAdopting);
  }
};

TEST_F(RoundOrphan, ASilentHolderIsWaitedForAndNotAskedAgainAtEverySuspicion) {
  round_.OnSuspect(PeerAt(1), SuspicionCause::kSilence, out_);
  round_.OnTrusted(PeerAt(1), out_);
  round_.OnSuspect(PeerAt(1), SuspicionCause::kSilence, out_);
  EXPECT_EQ(Count<Fetch>(out_), 1U);
  round_.OnCoordinatorLate(out_);
  EXPECT_FALSE(round_.over());
  EXPECT_EQ(Count<Fetch>(out_), 2U);
}

TEST_F(RoundOrphan, WhoseHoldersAreDeadEndsWithoutWaitingForItsDeadline) {
  round_.OnSuspect(PeerAt(1), SuspicionCause::kReset, out_);
  EXPECT_FALSE(round_.over()) << "what it sent may still arrive";
  round_.OnCoordinatorLate(out_);
  ASSERT_TRUE(round_.over());
  EXPECT_EQ(round_.outcome()->outcome, Outcome::kOrphaned);
}

// Who has gone on says so to whoever asks for what it has written over.
TEST_F(RoundOrphan, WhoseHoldersHaveGoneOnEndsAtOnce) {
  Say(1, Bye{ByeReason::kSatOut});
  ASSERT_TRUE(round_.over());
  EXPECT_EQ(round_.outcome()->outcome, Outcome::kOrphaned);
}

TEST(RoundValueStakes, TheLatestCountOfTheContributorsIsTheValues) {
  RoundValue value;
  value.chunks = {{0, RankSet::FromBits(3), 1}};
  value.stakes = {{1, 10, {AveragingId(4), 100}}, {2, 30, {AveragingId(5), 90}}};
  EXPECT_EQ(StakeOf(value), (Stake{3, 40, {AveragingId(5), 90}}));
}

}  // namespace
}  // namespace crowdsurf::worker
