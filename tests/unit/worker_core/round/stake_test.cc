// Stakes on their way: bases merge to one, or to none; ages add up; claims of a part do not count.
#include "worker/core/round/stake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/digest.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
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

// ---- claims of leases

constexpr DataSpec kData = {.samples = 1000, .unit = 10, .seed = 7};

// Chunks with these masks; each rank that is in one claims 10 samples more than the one before it.
RoundValue ClaimsIn(const std::vector<RankSet>& masks, size_t ranks) {
  RoundValue value;
  for (const RankSet mask : masks) value.chunks.push_back({.assigned = 0, .mask = mask, .hash = 1});
  value.stakes.resize(ranks);
  for (uint8_t rank = 0; rank < ranks; ++rank) {
    if (!ContributorsOf(value).Contains(rank)) continue;
    const uint64_t samples = 10 * (uint64_t{rank} + 1);
    Stake& stake = value.stakes[rank];
    stake.weight = stake.samples = static_cast<double>(samples);
    stake.claims.spec = kData;
    stake.claims.base = {.averaging = AveragingId(rank + 1U), .hash = rank};
    stake.claims.claims = {{.peer = PeerAt(rank), .trained = {5, samples}, .want = 1}};
  }
  return value;
}

std::vector<PeerId> Claimants(const Stake& stake) {
  std::vector<PeerId> peers;
  for (const LeaseClaim& claim : stake.claims.claims) peers.push_back(claim.peer);
  return peers;
}

std::vector<PeerId> Peers(const std::vector<int>& ranks) {
  std::vector<PeerId> peers;
  for (const int rank : ranks) peers.push_back(PeerAt(rank));
  std::sort(peers.begin(), peers.end());
  return peers;
}

TEST(StakeTest, AClaimCountsWhereItsRankIsInEveryChunk) {
  const RankSet all = RankSet::FirstRanks(3);
  const Stake whole = StakeOf(ClaimsIn({all, all}, 3));
  EXPECT_EQ(Claimants(whole), Peers({0, 1, 2}));
  EXPECT_EQ(whole.samples, 60);
  // Rank 2 died when one owner had its input and the other had not.
  for (const auto& masks :
       {std::vector<RankSet>{all, RankSet::Of(0, 1)}, {RankSet::Of(0, 1), all}}) {
    const RoundValue value = ClaimsIn(masks, 3);
    EXPECT_EQ(CountedOf(value), RankSet::Of(0, 1));
    const Stake partly = StakeOf(value);
    EXPECT_EQ(Claimants(partly), Peers({0, 1}));
    EXPECT_EQ(partly.samples, 30) << "they are trained again, and count then";
    EXPECT_EQ(partly.weight, 60) << "of all whose values are in it";
    EXPECT_EQ(partly.claims.base.averaging, AveragingId(3)) << "its ledger is the newest";
  }
}

TEST(StakeTest, WithoutAClaimAContributorCountsWhereverItIsIn) {
  RoundValue value = ClaimsIn({RankSet::Of(0, 1), RankSet::Of(0)}, 2);
  for (Stake& stake : value.stakes) stake.claims.claims.clear();
  EXPECT_EQ(CountedOf(value), RankSet::Of(0, 1));
  EXPECT_EQ(StakeOf(value).samples, 30);
  for (Stake& stake : value.stakes) stake.claims = {};
  EXPECT_EQ(CountedOf(value), RankSet::Of(0, 1));
}

// With IST a rank gives nothing to chunks that it does not cover, and claims all the same.
TEST(StakeTest, AClaimCountsWhereItsRankIsInEveryChunkThatItCovers) {
  const std::vector<RankSet> covered = {RankSet::Of(0, 1), RankSet::Of(1, 2), RankSet::Of(0, 2)};
  EXPECT_EQ(CountedOf(ClaimsIn(covered, 3), covered), RankSet::Of(0, 1, 2));
  // Ranks 0 and 2 died before the third was reduced: its new owner's own value stays.
  const std::vector<RankSet> masks = {RankSet::Of(0, 1), RankSet::Of(1, 2), RankSet::Of(1)};
  EXPECT_EQ(CountedOf(ClaimsIn(masks, 3), covered), RankSet::Of(1));
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
