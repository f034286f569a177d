// Who trains which units: the partition against its definition.
#include "worker/core/subnet/unit_partition.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/worker_core/subnet/drawn_model.h"

namespace crowdsurf::worker {
namespace {

using Shares = std::vector<uint32_t>;

TEST(ShareUnits, IsTheLargestRemainder) {
  EXPECT_EQ(ShareUnits(10, Shares{3, 2, 2}), (Shares{4, 3, 3}));   // 4.29, 2.86, 2.86
  EXPECT_EQ(ShareUnits(10, Shares{1, 1, 1}), (Shares{4, 3, 3}));   // equal remainders: the first
  EXPECT_EQ(ShareUnits(7, Shares{5, 1, 1}), (Shares{5, 1, 1}));    // exact
  EXPECT_EQ(ShareUnits(3, Shares{1, 1, 8}), (Shares{1, 1, 1}));    // .3, .3, 2.4: each has one
  EXPECT_EQ(ShareUnits(8, Shares{100, 1, 1}), (Shares{6, 1, 1}));  // 7.84, .08, .08
  EXPECT_EQ(ShareUnits(5, Shares{42}), (Shares{5}));
}

// Hamilton's method by its properties: every share is its quota rounded down or up, and nobody with
// a larger remainder is rounded down where a smaller one is rounded up. In long double, from the
// definition.
TEST(ShareUnits, KeepsQuotaAndTheOrderOfRemainders) {
  Rng rng(5);
  for (int draw = 0; draw < 2000; ++draw) {
    const Shares weights = DrawWeights(1 + rng.Uniform(12), rng);
    const auto units =
        static_cast<uint32_t>(uint64_t{9} * 12 + rng.Uniform(5000));  // each quota is above 1
    const Shares shares = ShareUnits(units, weights);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), 0u), units);
    const auto sum = static_cast<long double>(std::accumulate(weights.begin(), weights.end(), 0u));
    long double min_up = 1, max_down = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      const long double quota = units * (weights[i] / sum);
      const long double over = shares[i] - quota;
      ASSERT_LT(std::abs(over), 1) << "draw " << draw;
      if (over > 1e-12L) min_up = std::min(min_up, 1 - over);
      if (over < -1e-12L) max_down = std::max(max_down, -over);
    }
    EXPECT_GE(min_up, max_down - 1e-12L) << "draw " << draw;
  }
}

UnitPartition Of(const PartitionKey& key, const Shares& weights,
                 const std::map<uint32_t, uint32_t>& units) {
  return UnitPartition(key, weights, units);
}

// Masks of a group are disjoint and complete; with more members than units member j has subnet j
// mod units.
TEST(UnitPartition, EveryUnitIsSomebodysAndOnlyDoublesShare) {
  Rng rng(7);
  for (int draw = 0; draw < 500; ++draw) {
    const size_t members = 1 + rng.Uniform(64);
    const auto units = static_cast<uint32_t>(1 + rng.Uniform(80));
    const auto weights = DrawWeights(members, rng);
    const auto partition = Of({rng.Next(), 3, AveragingId(5)}, weights, {{2, units}});
    std::vector<std::vector<size_t>> owners(units);
    for (size_t member = 0; member < members; ++member) {
      const auto& own = partition.SetsOf(member).at(2);
      EXPECT_FALSE(own.empty());
      EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
      for (const uint32_t unit : own) owners[unit].push_back(member);
    }
    for (const auto& who : owners) {
      ASSERT_FALSE(who.empty()) << members << " members, " << units << " units";
      RankSet sharers;
      for (const size_t member : who) sharers.Insert(member);
      for (const size_t member : who) EXPECT_EQ(partition.Sharers(member, 2), sharers);
      for (const size_t member : who) EXPECT_EQ(member % units, who.front() % units);
      EXPECT_EQ(who.size(), members <= units ? 1u : sharers.size());
    }
  }
}

TEST(UnitPartition, OneMemberHasAll) {
  const auto partition = Of({1, 2, AveragingId(3)}, {5}, {{0, 4}, {1, 2}});
  EXPECT_EQ(partition.SetsOf(0), (IndexSets{{0, {0, 1, 2, 3}}, {1, {0, 1}}}));
}

// Any other key, and any other group, has another order; equal ones have equal orders, on every
// machine and in every version that shares a job: the literal.
TEST(UnitPartition, IsAFunctionOfItsKey) {
  const std::map<uint32_t, uint32_t> units = {{0, 40}, {1, 40}};
  const PartitionKey key{11, 22, AveragingId(33)};
  const auto partition = Of(key, {1, 1}, units);
  EXPECT_EQ(Of(key, {1, 1}, units).SetsOf(1), partition.SetsOf(1));
  EXPECT_NE(partition.SetsOf(0).at(0), partition.SetsOf(0).at(1));
  for (const PartitionKey& other :
       {PartitionKey{12, 22, AveragingId(33)}, PartitionKey{11, 23, AveragingId(33)},
        PartitionKey{11, 22, AveragingId(34)}}) {
    EXPECT_NE(Of(other, {1, 1}, units).SetsOf(0).at(0), partition.SetsOf(0).at(0));
  }
  EXPECT_EQ(Of(key, {1, 1, 2}, {{0, 8}}).SetsOf(2).at(0), (Shares{2, 3, 5, 6}));
}

// Two members with equal shares have a unit equally often, and a pair of units of two groups
// (an inner entry) in a quarter of the averagings: binomial, five standard deviations.
TEST(UnitPartition, UnitsAreDrawnEquallyOften) {
  constexpr int kAveragings = 4000;
  std::vector<int> unit(6), entry(6);
  for (uint64_t averaging = 0; averaging < kAveragings; ++averaging) {
    const auto partition = Of({99, 1, AveragingId(averaging)}, {1, 1}, {{0, 6}, {1, 6}});
    const auto& sets = partition.SetsOf(0);
    for (const uint32_t u : sets.at(0)) {
      ++unit[u];
      entry[u] += std::ranges::binary_search(sets.at(1), 0u) ? 1 : 0;
    }
  }
  for (size_t u = 0; u < 6; ++u) {
    EXPECT_NEAR(unit[u], kAveragings / 2.0, 5 * std::sqrt(kAveragings / 4.0)) << u;
    EXPECT_NEAR(entry[u], kAveragings / 4.0, 5 * std::sqrt(kAveragings * 3 / 16.0)) << u;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
