// The coordinates of a sub-network against a walk over every element.
#include "worker/core/subnet/subnet.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/unit/worker_core/subnet/drawn_model.h"

namespace crowdsurf::worker {
namespace {

// One member's sets of a drawn partition, at times without one of its groups.
IndexSets DrawSets(const UnitSchema& schema, Rng& rng) {
  const auto weights = DrawWeights(1 + rng.Uniform(9), rng);
  const UnitPartition partition({rng.Next(), 1, AveragingId(1)}, weights, schema.units());
  IndexSets sets = partition.SetsOf(rng.Uniform(weights.size()));
  if (!sets.empty() && rng.Bernoulli(0.2)) sets.erase(sets.begin());
  return sets;
}

std::vector<uint64_t> CoveredElements(const UnitSchema& schema, const IndexSets& sets) {
  std::vector<uint64_t> covered;
  const auto units = UnitsOfElements(schema);
  for (size_t element = 0; element < units.size(); ++element) {
    if (Covers(sets, units[element])) covered.push_back(element);
  }
  return covered;
}

TEST(Subnet, PacksTheElementsThatItsUnitsCoverInOrder) {
  Rng rng(1);
  for (int draw = 0; draw < 2000; ++draw) {
    const UnitSchema schema = DrawSchema(rng);
    const IndexSets sets = DrawSets(schema, rng);
    const Subnet subnet(schema, sets);
    std::vector<uint64_t> flat(schema.elements()), packed(subnet.size());
    std::iota(flat.begin(), flat.end(), uint64_t{0});
    subnet.Gather(std::span<const uint64_t>(flat), std::span(packed));
    ASSERT_EQ(packed, CoveredElements(schema, sets)) << "draw " << draw;
  }
}

// Every bit comes back, also of NaNs with a payload and of minus zero; and nothing else is touched.
TEST(Subnet, ScatterAfterGatherIsTheIdentityToTheBit) {
  Rng rng(2);
  for (int draw = 0; draw < 500; ++draw) {
    const UnitSchema schema = DrawSchema(rng);
    const IndexSets sets = DrawSets(schema, rng);
    const Subnet subnet(schema, sets);
    std::vector<float> flat(schema.elements()), other(flat.size()), packed(subnet.size());
    for (auto* values : {&flat, &other}) {
      for (float& value : *values) {
        const auto bits = static_cast<uint32_t>(rng.Next());
        std::memcpy(&value, &bits, sizeof bits);
      }
    }
    std::vector<float> expected = other;
    for (const uint64_t element : CoveredElements(schema, sets)) {
      std::memcpy(&expected[element], &flat[element], sizeof(float));
    }
    subnet.Gather(std::span<const float>(flat), std::span(packed));
    subnet.Scatter(std::span<const float>(packed), std::span(other));
    ASSERT_EQ(std::memcmp(other.data(), expected.data(), other.size() * sizeof(float)), 0)
        << "draw " << draw;
  }
}

TEST(CoordinateBlock, AnyRangeOfItIsThatPartOfTheWhole) {
  Rng rng(3);
  for (int draw = 0; draw < 1000; ++draw) {
    const UnitSchema schema = DrawSchema(rng);
    const Subnet subnet(schema, DrawSets(schema, rng));
    for (const CoordinateBlock& block : subnet.blocks()) {
      const auto elements = [&](uint64_t first, uint64_t count) {
        std::vector<uint64_t> out;
        block.ForEachRun(first, count, [&](uint64_t begin, uint64_t length) {
          ASSERT_GT(length, 0u);
          for (uint64_t i = 0; i < length; ++i) out.push_back(begin + i);
        });
        return out;
      };
      const auto all = elements(0, block.size());
      EXPECT_EQ(all.size(), std::accumulate(block.shape().begin(), block.shape().end(), uint64_t{1},
                                            std::multiplies<>()));
      const uint64_t first = rng.Uniform(block.size() + 1);
      const uint64_t count = rng.Uniform(block.size() - first + 1);
      const auto from = all.begin() + static_cast<long>(first);
      ASSERT_EQ(elements(first, count),
                std::vector<uint64_t>(from, from + static_cast<long>(count)));
    }
  }
}

// Where every axis is whole a tensor is one run: a plain copy.
TEST(Subnet, AllUnitsAreOneRunATensor) {
  const auto schema = *UnitSchema::Of({{"w", {6, 4}, {{.axis = 0}, {.axis = 1, .group = 1}}},
                                       {"v", {3, 12}, {{.axis = 1, .group = 1, .blocks = 3}}}});
  const Subnet subnet(schema, {{0, {0, 1, 2, 3, 4, 5}}, {1, {0, 1, 2, 3}}});
  for (const CoordinateBlock& block : subnet.blocks()) {
    int runs = 0;
    block.ForEachRun(0, block.size(), [&](uint64_t, uint64_t) { ++runs; });
    EXPECT_EQ(runs, 1);
  }
  EXPECT_EQ(subnet.size(), schema.elements());
}

// Of an inner matrix the members together touch sum |I_l| |I_(l-1)| entries, each once; of the
// first and last ones everything.
TEST(Subnet, InnerEntriesTouchedAreTheProductsOfTheShares) {
  Rng rng(4);
  for (int draw = 0; draw < 200; ++draw) {
    const uint64_t below = 8 + rng.Uniform(9), above = 8 + rng.Uniform(9);
    const auto schema = *UnitSchema::Of(
        {{"first", {below, 3}, {{.axis = 0, .group = 0}}},
         {"inner", {above, below}, {{.axis = 0, .group = 1}, {.axis = 1, .group = 0}}},
         {"last", {2, above}, {{.axis = 1, .group = 1}}}});
    const auto weights = DrawWeights(1 + rng.Uniform(8), rng);
    const UnitPartition partition({rng.Next(), 0, AveragingId()}, weights, schema.units());
    const auto shares_below = ShareUnits(static_cast<uint32_t>(below), weights);
    const auto shares_above = ShareUnits(static_cast<uint32_t>(above), weights);
    uint64_t expected = 0, touched[3] = {};
    for (size_t member = 0; member < weights.size(); ++member) {
      expected += uint64_t{shares_below[member]} * shares_above[member];
      const Subnet subnet(schema, partition.SetsOf(member));
      for (size_t i = 0; i < 3; ++i) touched[i] += subnet.blocks()[i].size();
    }
    EXPECT_EQ(touched[0], below * 3);
    EXPECT_EQ(touched[1], expected);
    EXPECT_EQ(touched[2], above * 2);
  }
}

TEST(ActivationScale, IsTheInverseOfTheShare) {
  EXPECT_EQ(ActivationScale(64, 16), 4);
  EXPECT_EQ(ActivationScale(64, 64), 1);
}

}  // namespace
}  // namespace crowdsurf::worker
