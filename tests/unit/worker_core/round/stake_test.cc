// Stakes on their way: bases merge to one, or to none; ages add up.
#include "worker/core/round/stake.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

ModelAge AgeOf(double steps, uint64_t averaging, double scale) {
  return {.steps = steps, .members = 1, .agreed = {AveragingId(averaging), scale}};
}

TEST(StakeTest, AgesAddUpAndTheLatestFactorStays) {
  RoundValue value = ValueOf({Digest(), Digest(), Digest()});
  value.stakes[0].age = AgeOf(2.5, 4, 3);
  value.stakes[1].age = AgeOf(-1, 5, 2);
  value.stakes[2].age = {.steps = 0, .members = 0, .agreed = {AveragingId(5), 1}};
  const ModelAge sum = StakeOf(value).age;
  EXPECT_EQ(sum.steps, 1.5);
  EXPECT_EQ(sum.members, 2U);
  EXPECT_EQ(sum.agreed, (AgreedScale{AveragingId(5), 2}));
  EXPECT_TRUE(StakeOf(ValueOf({Digest(), Digest()})).age.none());
}

TEST(StakeTest, AnAgeTravelsWithAndWithoutABase) {
  for (const Digest& base : {Digest(), kBase}) {
    Stake stake = From(base);
    stake.age = AgeOf(-3.25, 6, 4.5);
    ByteWriter out;
    Encode(stake, out);
    ByteReader in(out.bytes());
    EXPECT_EQ(DecodeStake(in), stake);
    EXPECT_TRUE(in.Done());
    for (size_t length = 0; length < out.bytes().size(); ++length) {
      ByteReader cut(ByteView(out.bytes()).first(length));
      (void)DecodeStake(cut);
      EXPECT_FALSE(cut.ok()) << length;
    }
  }
}

TEST(StakeTest, AnAgeThatIsSaidAndNotGivenIsGarbled) {
  Stake stake = From(Digest());
  stake.age = AgeOf(1, 1, 1);
  ByteWriter whole;
  Encode(stake, whole);
  Bytes zeros = whole.bytes();
  std::fill(zeros.begin() + 64, zeros.end(), uint8_t{0});
  ByteReader in(zeros);
  (void)DecodeStake(in);
  EXPECT_FALSE(in.ok());
}

TEST(StakeTest, AnAgeIsInBounds) {
  Stake stake;
  for (const double steps : {0.0, -5.0, kMaxModelAge, -kMaxModelAge}) {
    stake.age = AgeOf(steps, 1, 2);
    EXPECT_TRUE(IsValid(stake)) << steps;
  }
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double steps : {infinite, -infinite, std::nan(""), 2 * kMaxModelAge}) {
    stake.age = AgeOf(steps, 1, 2);
    EXPECT_FALSE(IsValid(stake)) << steps;
  }
  for (const double scale : {infinite, std::nan(""), -1.0}) {
    stake.age = AgeOf(1, 1, scale);
    EXPECT_FALSE(IsValid(stake)) << scale;
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
