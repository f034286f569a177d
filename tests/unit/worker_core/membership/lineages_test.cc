// Which of two lineages wins: the one in which more members live.
#include "worker/core/membership/lineages.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/membership/roster.h"

namespace crowdsurf::worker {
namespace {

ViewHash Origin(uint8_t n) {
  std::array<uint8_t, ViewHash::kBytes> bytes{};
  bytes[0] = n;
  return ViewHash(bytes);
}

// Seated in a lineage whose view had so many members when it was made.
RosterRecord In(const ViewHash& origin, uint64_t at_the_making) {
  RosterRecord record;
  record.seated = true;
  record.lineage = {.members = at_the_making, .origin = origin};
  return record;
}

bool Nobody(const PeerId&) { return false; }

TEST(LineagesTest, WhoLivesCountsAndNotWhoSatThereOnce) {
  std::map<PeerId, RosterRecord> records;
  records[Id(1)] = In(Origin(1), 8);  // the last of eight
  for (uint8_t n = 2; n <= 6; ++n) records[Id(n)] = In(Origin(2), 5);
  const LineageCount count = CountLineages(records, Nobody);
  EXPECT_EQ(count.Of(Origin(1)).members, 1U);
  EXPECT_EQ(count.Of(Origin(2)).members, 5U);
  EXPECT_TRUE(count.Of(Origin(2)).Beats(count.Of(Origin(1))));
  // For the last of eight the five are the better lineage, and for them nobody is.
  EXPECT_EQ(count.Better({.members = 1, .origin = Origin(1)}), count.Of(Origin(2)));
  EXPECT_EQ(count.Better({.members = 5, .origin = Origin(2)}), std::nullopt);
}

TEST(LineagesTest, WhoLeavesOrHasNoSeatOrSitsHereLivesInNoOtherLineage) {
  std::map<PeerId, RosterRecord> records;
  for (uint8_t n = 1; n <= 4; ++n) records[Id(n)] = In(Origin(1), 4);
  records[Id(2)].leaving = true;
  records[Id(3)].seated = false;
  const auto sits_here = [](const PeerId& peer) { return peer == Id(4); };
  EXPECT_EQ(CountLineages(records, sits_here).Of(Origin(1)).members, 1U);
  EXPECT_EQ(CountLineages({}, Nobody).Of(Origin(1)).members, 0U);
}

TEST(LineagesTest, TheBestOfThreeIsSoughtAndOfEqualOnesTheSmallerOrigin) {
  std::map<PeerId, RosterRecord> records;
  for (uint8_t n = 1; n <= 2; ++n) records[Id(n)] = In(Origin(1), 2);
  for (uint8_t n = 3; n <= 5; ++n) records[Id(n)] = In(Origin(2), 3);
  for (uint8_t n = 6; n <= 8; ++n) records[Id(n)] = In(Origin(3), 3);
  const auto better = CountLineages(records, Nobody).Better({.members = 2, .origin = Origin(1)});
  ASSERT_TRUE(better);
  EXPECT_EQ(better->origin, Origin(2));
  EXPECT_EQ(CountLineages(records, Nobody).Better({.members = 4, .origin = Origin(9)}),
            std::nullopt);
}

}  // namespace
}  // namespace crowdsurf::worker
