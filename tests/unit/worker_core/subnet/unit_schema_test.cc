// Unit groups of a model, and their index sets as bytes.
#include "worker/core/subnet/unit_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/core/subnet/index_sets.h"

namespace crowdsurf::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string FlawOf(std::vector<UnitTensor> tensors) {
  return std::string(UnitSchema::Of(std::move(tensors)).status().message());
}

TEST(UnitSchema, AxesMayHaveBlocksAndUnitsOfSeveralPositions) {
  const auto schema = UnitSchema::Of({
      {"recurrent", {12, 4}, {{.axis = 0, .group = 0, .blocks = 3}, {.axis = 1, .group = 0}}},
      {"convolution", {8, 4, 3, 3}, {{.axis = 1, .group = 0}}},
      {"query", {32, 5}, {{.axis = 0, .group = 9, .unit_size = 16}}},
      {"scalar", {}, {}},
  });
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->units(), (std::map<uint32_t, uint32_t>{{0, 4}, {9, 2}}));
  EXPECT_EQ(schema->elements(), 12u * 4 + 8 * 4 * 9 + 32 * 5 + 1);
}

TEST(UnitSchema, WhatDoesNotMatchIsRefusedWithTheTensorsName) {
  EXPECT_THAT(FlawOf({{"w", {4}, {{.axis = 1}}}}), HasSubstr("tensor \"w\": there is no axis 1"));
  EXPECT_THAT(FlawOf({{"w", {}, {{.axis = 0}}}}), HasSubstr("there is no axis 0"));
  EXPECT_THAT(FlawOf({{"w", {7}, {{.axis = 0, .blocks = 3}}}}), HasSubstr("3 blocks"));
  EXPECT_THAT(FlawOf({{"w", {7}, {{.axis = 0, .unit_size = 2}}}}), HasSubstr("units of size 2"));
  EXPECT_THAT(FlawOf({{"w", {7}, {{.axis = 0, .unit_size = 0}}}}), HasSubstr("axis 0"));
  EXPECT_THAT(FlawOf({{"w", {7}, {{.axis = 0, .blocks = 0}}}}), HasSubstr("axis 0"));
  EXPECT_THAT(FlawOf({{"w", {uint64_t{kMaxUnits} + 1}, {{.axis = 0}}}}), HasSubstr("2^24"));
  EXPECT_THAT(FlawOf({{"w", {4}, {{.axis = 0}, {.axis = 0, .group = 1}}}}),
              HasSubstr("two unit groups"));
  EXPECT_THAT(
      FlawOf({{"a", {4}, {{.axis = 0}}}, {"b", {5}, {{.axis = 0}}}, {"c", {2}, {{.axis = 3}}}}),
      AllOf(HasSubstr("tensor \"b\": axis 0 has 5 units of group 0, other tensors have 4"),
            HasSubstr("tensor \"c\"")));
}

TEST(UnitSchema, IndexSetsFitOrAreWhole) {
  const auto schema = *UnitSchema::Of({{"w", {3, 2}, {{.axis = 0}, {.axis = 1, .group = 1}}}});
  EXPECT_TRUE(schema.Fits({}));
  EXPECT_TRUE(schema.IsWhole({}));
  EXPECT_TRUE(schema.Fits({{0, {0, 2}}}));
  EXPECT_FALSE(schema.IsWhole({{0, {0, 2}}}));
  EXPECT_TRUE(schema.IsWhole({{0, {0, 1, 2}}, {1, {0, 1}}}));
  EXPECT_FALSE(schema.Fits({{0, {}}})) << "empty";
  EXPECT_FALSE(schema.Fits({{0, {3}}})) << "beyond the group";
  EXPECT_FALSE(schema.Fits({{0, {1, 0}}})) << "not ascending";
  EXPECT_FALSE(schema.Fits({{0, {1, 1}}})) << "twice";
  EXPECT_FALSE(schema.Fits({{2, {0}}})) << "no such group";
}

const std::map<uint32_t, uint32_t> kUnits = {{1, 4}, {3, 2}, {9, 1}};

TEST(IndexSets, ComeBackFromTheirRegionAsTheyWere) {
  for (const IndexSets& sets :
       {IndexSets{}, IndexSets{{1, {0, 3}}}, IndexSets{{1, {0, 1, 2, 3}}, {3, {0, 1}}, {9, {0}}}}) {
    Bytes region = EncodeIndexSets(sets);
    ASSERT_LE(region.size(), IndexRegionBytes(kUnits));
    region.resize(IndexRegionBytes(kUnits));
    EXPECT_EQ(DecodeIndexSets(region, kUnits), sets);
  }
  EXPECT_EQ(IndexRegionBytes(kUnits), 3 * 8 + 4 * (4u + 2 + 1));
}

// Whatever is read is what its writer would have written.
TEST(IndexSets, GarbledBytesAreRefused) {
  Bytes region = EncodeIndexSets({{1, {0, 3}}, {3, {1}}});
  region.resize(IndexRegionBytes(kUnits));
  size_t refused = 0;
  for (size_t i = 0; i < region.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes bad = region;
      bad[i] ^= static_cast<uint8_t>(1 << bit);
      const auto read = DecodeIndexSets(bad, kUnits);
      if (!read) {
        ++refused;
        continue;
      }
      Bytes again = EncodeIndexSets(*read);
      again.resize(region.size());
      EXPECT_EQ(again, bad) << "byte " << i << " bit " << bit;
    }
  }
  EXPECT_GT(refused, region.size() * 7);
  EXPECT_FALSE(DecodeIndexSets(EncodeIndexSets({{3, {0}}, {9, {0}}, {1, {0}}}), {{3, 2}}))
      << "unknown";
  Bytes cut = EncodeIndexSets({{1, {0, 3}}});
  cut.resize(cut.size() - 4);
  EXPECT_FALSE(DecodeIndexSets(cut, kUnits));
}

}  // namespace
}  // namespace crowdsurf::worker
