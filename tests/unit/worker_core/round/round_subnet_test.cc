// A round in which members cover different chunks: who is waited for, what nobody is left to give,
// and who leaves when bases differ.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/digest.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round.h"

namespace crowdsurf::worker {
namespace {

const Digest kBase = Sha256(AsBytes("base"));

Stake StakeAt(uint64_t averaging, const Digest& base, double samples = 100) {
  return {.weight = 5,
          .samples = 5,
          .before = {AveragingId(averaging), samples},
          .holds = {},
          .base = base,
          .age = {}};
}

// Three members. Chunk 0 is rank 0's alone, chunk 1 rank 1's, chunk 2 of all, chunk 3 of nobody.
RoundSpec Spec() {
  RoundSpec spec;
  spec.cells = {{PeerAt(0), {}}, {PeerAt(1), {}}, {PeerAt(2), {}}};
  spec.witnesses = {PeerAt(0), PeerAt(1), PeerAt(2)};
  spec.chunks = {{0, 0, 1}, {1, 1, 1}, {0, 2, 1}, {0, 3, 1}};
  spec.coverers = {RankSet::Of(0), RankSet::Of(1), RankSet::FirstRanks(3), RankSet()};
  spec.leaves_when_behind = true;
  spec.stake = StakeAt(3, kBase);
  return spec;
}

class RoundSubnet : public testing::Test {
 protected:
  void SayReady(int from, const Stake& stake, const RoundSpec& spec = Spec()) {
    round_.OnFrame(
        PeerAt(static_cast<size_t>(from)),
        {spec.instance,
         Ready{
             stake, {}, MemberListHash(spec.cells), PartsHash(spec.chunks, spec.coverers), false}},
        out_);
  }
  const FoldChunk* Fold(uint32_t chunk) const {
    for (const RoundAction& action : out_)
      if (const auto* fold = std::get_if<FoldChunk>(&action); fold && fold->chunk.value() == chunk)
        return fold;
    return nullptr;
  }
  size_t Inputs() const {
    return static_cast<size_t>(std::count_if(out_.begin(), out_.end(), [](const auto& action) {
      return std::holds_alternative<SendInput>(action);
    }));
  }
  bool Left() const { return round_.over() && round_.outcome()->outcome == Outcome::kLeft; }

  Round round_{Spec()};
  RoundActions out_;
};

TEST_F(RoundSubnet, NobodyIsWaitedForWhereHeCoversNothing) {
  round_.Start(out_);
  SayReady(1, StakeAt(3, kBase));
  EXPECT_EQ(Fold(0), nullptr) << "its result would be lost at one that is not there yet";
  SayReady(2, StakeAt(3, kBase));
  ASSERT_NE(Fold(0), nullptr);
  EXPECT_EQ(Fold(0)->mask, RankSet::Of(0));
  ASSERT_NE(Fold(3), nullptr) << "of nobody: the owner's own value";
  EXPECT_EQ(Fold(3)->mask, RankSet::Of(0));
  EXPECT_EQ(Fold(2), nullptr);
  EXPECT_EQ(Inputs(), 0U) << "chunk 1 is not its own to give";
  EXPECT_FALSE(round_.OnInput(PeerAt(1), 1, ChunkIndex(0), 0, out_));
  EXPECT_TRUE(round_.OnInput(PeerAt(1), 1, ChunkIndex(2), 0, out_));
  EXPECT_TRUE(round_.OnInput(PeerAt(2), 2, ChunkIndex(2), 0, out_));
  ASSERT_NE(Fold(2), nullptr);
  EXPECT_EQ(Fold(2)->mask, RankSet::FirstRanks(3));
}

TEST_F(RoundSubnet, WhoIsBehindLeavesAndWhoIsAheadGoesOn) {
  for (const auto& [other, leaves] : std::initializer_list<std::pair<Stake, bool>>{
           {StakeAt(4, Sha256(AsBytes("later"))), true},
           {StakeAt(2, Sha256(AsBytes("earlier"))), false},
           {StakeAt(3, Sha256(AsBytes("of more samples")), 101), true},
           {StakeAt(3, Sha256(AsBytes("of fewer samples")), 99), false},
           {StakeAt(3, Digest()), false}}) {
    round_ = Round(Spec());
    out_.clear();
    round_.Start(out_);
    SayReady(1, other);
    EXPECT_EQ(Left(), leaves);
  }
}

TEST_F(RoundSubnet, OfTwoAtOneCountTheHigherRootLeaves) {
  const Digest other = Sha256(AsBytes("other"));
  round_.Start(out_);
  SayReady(1, StakeAt(3, other));
  EXPECT_EQ(Left(), other < kBase);
}

// Its first average of a view is of whole models, and this member has missed that.
TEST_F(RoundSubnet, OneWithOtherChunksLeavesWhenItIsBehind) {
  RoundSpec whole = Spec();
  whole.chunks = {{0, 0, 2}, {1, 2, 2}};
  whole.coverers.clear();
  round_ = Round(whole);
  round_.Start(out_);
  SayReady(1, StakeAt(4, kBase));
  EXPECT_TRUE(Left());
}

// What rank 1 says that it has decided with rank 2, on `base`, in so many chunks.
Decided DecidedOn(const Digest& base, size_t chunks = 4, RankSet members = RankSet::Of(1, 2)) {
  HeldValue held;
  held.members = members;
  for (size_t chunk = 0; chunk < chunks; ++chunk)
    held.value.chunks.push_back({1, RankSet::Of(1), 7});
  held.value.stakes.assign(3, {});
  held.value.stakes[1] = StakeAt(3, base);
  held.value.stakes[2] = StakeAt(3, base);
  return {1, false, held};
}

// It came late, and the others have decided without it. Nobody would answer it any more.
TEST_F(RoundSubnet, WhoComesLateToAValueOfAnotherBaseLeaves) {
  round_.Start(out_);
  round_.OnFrame(PeerAt(1), {Spec().instance, DecidedOn(Sha256(AsBytes("other")))}, out_);
  EXPECT_TRUE(Left());
  EXPECT_TRUE(round_.counts().refused.empty());
}

TEST_F(RoundSubnet, WhoComesLateToAValueOfOtherChunksLeaves) {
  round_.Start(out_);
  round_.OnFrame(PeerAt(1), {Spec().instance, DecidedOn(kBase, 2)}, out_);
  EXPECT_TRUE(Left());
}

TEST_F(RoundSubnet, AValueOfAnotherBaseIsNotTaken) {
  round_.Start(out_);
  const Decided names_it = DecidedOn(Sha256(AsBytes("other")), 4, RankSet::FirstRanks(3));
  round_.OnFrame(PeerAt(1), {Spec().instance, names_it}, out_);
  EXPECT_EQ(round_.counts().refused.at(FrameRefusal::kDecidedUnsound), 1U)
      << "it has agreed to no such value";
  EXPECT_FALSE(round_.over());
  RoundSpec equal = Spec();  // no sub-networks: bases need not be the same
  equal.leaves_when_behind = false;
  round_ = Round(equal);
  round_.Start(out_);
  round_.OnFrame(PeerAt(1), {Spec().instance, DecidedOn(Sha256(AsBytes("other")))}, out_);
  EXPECT_EQ(round_.counts().refused.at(FrameRefusal::kDecidedUnsound), 1U);
  EXPECT_FALSE(round_.over());
  round_.OnFrame(PeerAt(1), {Spec().instance, DecidedOn(kBase)}, out_);
  EXPECT_EQ(round_.counts().refused.at(FrameRefusal::kDecidedUnsound), 1U);
}

}  // namespace
}  // namespace crowdsurf::worker
