// Part sizes against hivemind's published vectors, and against every transfer between two members.
// Chunks against lists by hand.
#include "worker/core/round/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

using Bandwidths = std::vector<std::optional<double>>;
constexpr auto kNone = std::nullopt;

struct Vector {
  uint64_t elements;
  Bandwidths bandwidths;
  uint64_t min_elements;
  std::vector<uint64_t> parts;
};

// hivemind's own test vectors.
TEST(PartitionTest, PartSizesAreThoseOfThePublishedVectors) {
  const Vector vectors[] = {
      {60, {.55, .44, .40}, 0, {35, 16, 9}},
      {60, {.55, .44, .40}, 10, {41, 19, 0}},
      {60, {.25, .25, .25, .25}, 0, {15, 15, 15, 15}},
      {1 << 20, {0., .5, 0., .6}, 0, {0, 428963, 0, 619613}},
      {60, {.32, .55, .44}, 10, {0, 40, 20}},
      {2, {.55, .20, .44}, 10, {1, 0, 1}},
      {1, {.55, .20, .44}, 10, {1, 0, 0}},
      {100, {kNone, kNone}, 0, {50, 50}},
      {100, {0., 0., 0., kNone, kNone}, 0, {0, 0, 0, 50, 50}},
  };
  for (const Vector& v : vectors) {
    const auto parts = PartSizes(v.elements, v.bandwidths, v.min_elements);
    ASSERT_TRUE(parts.ok());
    EXPECT_EQ(*parts, v.parts) << v.elements << " elements, least " << v.min_elements;
  }
}

TEST(PartitionTest, NobodyToReduceIsAnError) {
  EXPECT_EQ(PartSizes(100, {0., 0., 0.}, 0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PartSizes(100, {}, 0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PartSizes(100, {1., -1.}, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

double CostOf(const std::vector<uint64_t>& parts, const Bandwidths& bandwidths, double elements) {
  double cost = 0;
  const auto n = static_cast<double>(parts.size());
  for (size_t i = 0; i < parts.size(); ++i)
    cost =
        std::max(cost, (1 + (n - 2) * static_cast<double>(parts[i]) / elements) / *bandwidths[i]);
  return cost;
}

// When the slowest member's own upload binds, the optimum is not unique: only the cost is compared.
TEST(PartitionTest, TheCostIsNoMoreThanThePublishedOne) {
  const Bandwidths bandwidths = {.3, .5, .9};
  const auto parts = PartSizes(1024, bandwidths, 0);
  ASSERT_TRUE(parts.ok());
  EXPECT_LE(CostOf(*parts, bandwidths, 1024), CostOf({0, 255, 769}, bandwidths, 1024) + 1e-9);
}

// Independent of the closed form: no transfer between two members lowers the slowest one's time.
TEST(PartitionTest, NoTransferBetweenTwoMembersHelps) {
  Rng rng(5);
  for (int run = 0; run < 200; ++run) {
    Bandwidths bandwidths;
    for (uint64_t n = 3 + rng.Uniform(6); n > 0; --n)
      bandwidths.push_back(0.05 + rng.UniformDouble());
    constexpr uint64_t kElements = 100'000;
    const auto parts = PartSizes(kElements, bandwidths, 0);
    ASSERT_TRUE(parts.ok());
    EXPECT_EQ(std::accumulate(parts->begin(), parts->end(), uint64_t{0}), kElements);
    const double cost = CostOf(*parts, bandwidths, kElements);
    for (size_t a = 0; a < parts->size(); ++a) {
      for (size_t b = 0; b < parts->size(); ++b) {
        std::vector<uint64_t> moved = *parts;
        if (a == b || moved[a] < 100) continue;
        moved[a] -= 100;
        moved[b] += 100;
        EXPECT_GE(CostOf(moved, bandwidths, kElements), cost - 1e-3);
      }
    }
  }
}

TEST(PartitionTest, ChunksCoverEverySharedElementOnce) {
  const std::vector<ChunkSpan> chunks = MakeChunks({7, 0, 10}, RankSet::Of(0, 2), 4);
  const std::vector<ChunkSpan> expected = {{0, 0, 4}, {0, 4, 3}, {2, 7, 4}, {2, 11, 4}, {2, 15, 2}};
  EXPECT_EQ(chunks, expected);
}

TEST(PartitionTest, NoElementsAreOneEmptyChunkOfTheFirstMember) {
  const std::vector<ChunkSpan> expected = {{1, 0, 0}};
  EXPECT_EQ(MakeChunks({0, 0, 0}, RankSet::Of(1, 2), 4), expected);
}

TEST(PartitionTest, ABandwidthClassKeepsTheBandwidthToAQuarterOctave) {
  for (double bandwidth = 1; bandwidth < 1e12; bandwidth *= 1.37) {
    const double back = *BandwidthOfClass(ClassOfBandwidth(bandwidth));
    EXPECT_LT(std::max(back / bandwidth, bandwidth / back), 1.19);
  }
  EXPECT_EQ(ClassOfBandwidth(0), 0U);
  EXPECT_EQ(BandwidthOfClass(0), std::nullopt);
}

}  // namespace
}  // namespace crowdsurf::worker
