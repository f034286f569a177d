// A round of changes: all are from one base, or they are in no value together.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/digest.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round.h"

namespace crowdsurf::worker {
namespace {

const Digest kBase = Sha256(AsBytes("base"));

Stake StakeAt(uint64_t averaging, const Digest& base) {
  return {.weight = 5,
          .samples = 5,
          .before = {AveragingId(averaging), 100},
          .holds = {},
          .base = base,
          .age = {},
          .claims = {}};
}

// Two members, and a hole that peer 5 speaks for.
RoundSpec Spec(bool changes = true) {
  RoundSpec spec;
  spec.cells = {{PeerAt(0), {}}, {PeerAt(1), {}}, {std::nullopt, {PeerAt(5)}}};
  spec.witnesses = {PeerAt(0), PeerAt(1)};
  spec.chunks = {{0, 0, 1024}, {1, 1024, 300}};
  spec.one_base = changes;
  spec.leaves_when_behind = true;
  spec.stake = StakeAt(3, changes ? kBase : Digest());
  return spec;
}

class RoundChanges : public testing::Test {
 protected:
  void Start(const RoundSpec& spec) {
    round_ = Round(spec);
    out_.clear();
    round_.Start(out_);
  }
  // Of member 1, whose round is one of changes or not.
  void SayReady(const Stake& stake, bool changes) {
    const RoundSpec spec = Spec(changes);
    round_.OnFrame(
        PeerAt(1),
        {spec.instance,
         Ready{stake, {}, MemberListHash(spec.cells), PartsHash(spec.chunks, {}, changes), false}},
        out_);
  }
  void Speak(const Stake& stake) {
    round_.OnFrame(PeerAt(5), {Spec().instance, worker::Speak{2, stake, {}}}, out_);
  }
  // Chunk 0 is folded once the inputs are here: of whom?
  RankSet Contributors() const {
    for (const RoundAction& action : out_)
      if (const auto* fold = std::get_if<FoldChunk>(&action)) return fold->mask;
    return {};
  }
  bool Left() const { return round_.over() && round_.outcome()->outcome == Outcome::kLeft; }

  Round round_{Spec()};
  RoundActions out_;
};

TEST_F(RoundChanges, OneWithAnotherBaseIsNotInTheValue) {
  Start(Spec());
  SayReady(StakeAt(3, kBase), true);
  EXPECT_FALSE(Left());
  Start(Spec());
  SayReady(StakeAt(4, Sha256(AsBytes("later"))), true);
  EXPECT_TRUE(Left()) << "this member is behind";
  Start(Spec());
  SayReady(StakeAt(2, Sha256(AsBytes("earlier"))), true);
  EXPECT_FALSE(Left()) << "the other is";
  EXPECT_FALSE(round_.OnInput(PeerAt(1), 1, ChunkIndex(0), 0, out_) && Contributors().Contains(1));
}

// A member that holds no base of this view averages whole values.
TEST_F(RoundChanges, WholeValuesAndChangesDoNotMeet) {
  Start(Spec(false));
  SayReady(StakeAt(3, kBase), true);
  EXPECT_TRUE(Left()) << "the one without a base leaves";
  Start(Spec(true));
  SayReady(StakeAt(3, Digest()), false);
  EXPECT_FALSE(Left());
  Start(Spec(false));
  SayReady(StakeAt(3, Digest()), false);
  EXPECT_FALSE(Left());
}

TEST_F(RoundChanges, AStandInWithAnotherBaseHasNothingToSay) {
  for (const bool same : {true, false}) {
    Start(Spec());
    SayReady(StakeAt(3, kBase), true);
    Speak(StakeAt(3, same ? kBase : Sha256(AsBytes("other"))));
    round_.OnInput(PeerAt(1), 1, ChunkIndex(0), 0, out_);
    const bool taken = round_.OnInput(PeerAt(5), 2, ChunkIndex(0), 0, out_);
    EXPECT_EQ(taken, same);
    EXPECT_EQ(Contributors(), same ? RankSet::FirstRanks(3) : RankSet::FirstRanks(2));
  }
}

TEST_F(RoundChanges, TheHashOfThePartsTellsThemApart) {
  const RoundSpec spec = Spec();
  EXPECT_NE(PartsHash(spec.chunks, {}, true), PartsHash(spec.chunks, {}, false));
  EXPECT_EQ(PartsHash(spec.chunks, {}, false), PartsHash(spec.chunks));
}

}  // namespace
}  // namespace crowdsurf::worker
