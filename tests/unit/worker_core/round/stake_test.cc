// Stakes on their way: bases merge to one, or to none.
#include "worker/core/round/stake.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "worker/core/round/round_frames.h"

namespace crowdsurf::worker {
namespace {

const Digest kBase = Sha256(AsBytes("base"));
const Digest kOther = Sha256(AsBytes("another"));

Stake From(const Digest& base) {
  return {.weight = 3, .samples = 4, .before = {AveragingId(7), 100}, .holds = {}, .base = base};
}

// One chunk of all that have a base or an own word; ranks that are in no mask have no stake.
RoundValue ValueOf(const std::vector<std::optional<Digest>>& bases) {
  RoundValue value;
  RankSet mask;
  for (size_t rank = 0; rank < bases.size(); ++rank) {
    value.stakes.push_back(bases[rank] ? From(*bases[rank]) : Stake());
    if (bases[rank]) mask.Insert(rank);
  }
  value.chunks.push_back({.assigned = 0, .mask = mask, .hash = 1});
  return value;
}

TEST(StakeTest, ABaseStaysWhereAllContributorsHaveIt) {
  EXPECT_EQ(StakeOf(ValueOf({kBase, kBase, kBase})).base, kBase);
  EXPECT_EQ(StakeOf(ValueOf({std::nullopt, kBase, std::nullopt, kBase})).base, kBase)
      << "who is in no result says nothing";
  EXPECT_EQ(StakeOf(ValueOf({kBase})).base, kBase);
}

TEST(StakeTest, OneWithAnotherBaseOrWithoutLeavesNone) {
  EXPECT_TRUE(StakeOf(ValueOf({kBase, kOther})).base.none());
  EXPECT_TRUE(StakeOf(ValueOf({kBase, kBase, Digest()})).base.none());
  EXPECT_TRUE(StakeOf(ValueOf({Digest(), Digest()})).base.none());
  EXPECT_TRUE(StakeOf(ValueOf({std::nullopt})).base.none());
}

// Groups merge on one axis, and what comes of it on the next: in whatever order, the same.
TEST(StakeTest, NoneAbsorbsInAnyOrderOfRounds) {
  const auto merge = [](const Digest& a, const Digest& b) { return StakeOf(ValueOf({a, b})).base; };
  const Digest none;
  for (const Digest& a : {none, kBase, kOther})
    for (const Digest& b : {none, kBase, kOther})
      for (const Digest& c : {none, kBase, kOther}) {
        EXPECT_EQ(merge(a, b), merge(b, a));
        EXPECT_EQ(merge(merge(a, b), c), merge(a, merge(b, c)));
        EXPECT_TRUE(merge(none, a).none());
      }
}

TEST(StakeTest, TravelsAsItIsAndIsNoLongerWithoutABase) {
  for (const Digest& base : {Digest(), kBase}) {
    ByteWriter out;
    Encode(From(base), out);
    EXPECT_EQ(out.bytes().size(), base.none() ? 64U : 96U);
    ByteReader in(out.bytes());
    EXPECT_EQ(DecodeStake(in), From(base));
    EXPECT_TRUE(in.Done());
  }
}

TEST(StakeTest, ABaseThatIsSaidAndNotGivenIsGarbled) {
  ByteWriter whole;
  Encode(From(kBase), whole);
  for (size_t length = 0; length < whole.bytes().size(); ++length) {
    ByteReader in(ByteView(whole.bytes()).first(length));
    (void)DecodeStake(in);
    EXPECT_FALSE(in.ok()) << length;
  }
  Bytes zeros = whole.bytes();
  std::fill(zeros.end() - Digest::kBytes, zeros.end(), uint8_t{0});
  ByteReader in(zeros);
  (void)DecodeStake(in);
  EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace crowdsurf::worker
