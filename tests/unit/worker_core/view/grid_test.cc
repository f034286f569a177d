// Grids fitted to N against brute force over all ascending radices; cells and groups against their
// definition.
#include "worker/core/view/grid.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace crowdsurf::worker {
namespace {

// Every ascending tuple of `axes` radices in 2..M, by brute force.
void Tuples(size_t axes, size_t m, std::vector<uint16_t>& current,
            std::vector<std::vector<uint16_t>>& out) {
  if (current.size() == axes) {
    out.push_back(current);
    return;
  }
  for (size_t radix = current.empty() ? 2 : current.back(); radix <= m; ++radix) {
    current.push_back(static_cast<uint16_t>(radix));
    Tuples(axes, m, current, out);
    current.pop_back();
  }
}

size_t Product(const std::vector<uint16_t>& radices) {
  return std::accumulate(radices.begin(), radices.end(), size_t{1}, std::multiplies<>());
}

TEST(GridTest, FitEqualsBruteForceForEveryMemberCountAndGroupSize) {
  for (size_t m = 2; m <= 64; ++m) {
    size_t reach = 1;
    size_t members = 2;
    for (size_t axes = 1; members <= 1100; ++axes) {
      reach *= m;
      std::vector<std::vector<uint16_t>> tuples;
      std::vector<uint16_t> current;
      Tuples(axes, m, current, tuples);
      // By (product, largest radix), then the greatest first radices: the best comes first.
      std::sort(tuples.begin(), tuples.end(), [](const auto& a, const auto& b) {
        return std::tuple(Product(a), a.back(), b) < std::tuple(Product(b), b.back(), a);
      });
      size_t at = 0;
      for (; members <= std::min<size_t>(reach, 1100); ++members) {
        while (Product(tuples[at]) < members) ++at;
        ASSERT_EQ(FitGrid(members, m).radices, tuples[at]) << members << " in groups of " << m;
      }
    }
  }
}

TEST(GridTest, FitsTheSizesOfTheReferenceTable) {
  const std::map<size_t, std::vector<uint16_t>> table = {
      {512, {16, 32}}, {521, {18, 29}},  {751, {26, 29}}, {768, {24, 32}},
      {900, {30, 30}}, {1000, {32, 32}}, {1024, {32, 32}}};
  for (const auto& [members, radices] : table)
    EXPECT_EQ(Product(FitGrid(members, 32).radices), Product(radices)) << members;
  EXPECT_EQ(FitGrid(8, 4).radices, (std::vector<uint16_t>{2, 4}));
  EXPECT_EQ(FitGrid(1, 4).radices, (std::vector<uint16_t>{1}));
  EXPECT_EQ(FitGrid(64, 64).radices, (std::vector<uint16_t>{64}));
}

TEST(GridTest, TheLargestJobFitsInTime) {
  for (size_t m : {2U, 3U, 5U, 16U, 64U}) {
    const Grid grid = FitGrid(100'000, m);
    EXPECT_GE(grid.cells(), 100'000U);
    EXPECT_LE(grid.cells(), kMaxCells);
  }
}

TEST(GridTest, CellsAndCoordinatesAreInverse) {
  const Grid grid{{2, 3, 5}};
  std::set<std::vector<uint16_t>> seen;
  for (CellIndex cell = 0; cell < grid.cells(); ++cell) {
    const auto coordinates = Coordinates(grid, cell);
    EXPECT_EQ(CellAt(grid, coordinates), cell);
    seen.insert(coordinates);
  }
  EXPECT_EQ(seen.size(), 30U);
  EXPECT_EQ(Coordinates(grid, 29), (std::vector<uint16_t>{1, 2, 4}));
  EXPECT_EQ(Coordinates(grid, 15), (std::vector<uint16_t>{1, 0, 0}));  // axis 0 is the highest
}

TEST(GridTest, GroupsStandInsAndAgreementFollowTheirDefinition) {
  for (const Grid& grid : {Grid{{2, 3, 4}}, Grid{{3, 3}}, Grid{{5}}, Grid{{1}}}) {
    for (CellIndex a = 0; a < grid.cells(); ++a) {
      const auto at = Coordinates(grid, a);
      for (size_t axis = 0; axis < grid.axes(); ++axis) {
        std::vector<CellIndex> group;
        for (uint16_t k = 0; k < grid.radices[axis]; ++k) {
          auto coordinates = at;
          coordinates[axis] = k;
          group.push_back(CellAt(grid, coordinates));
        }
        EXPECT_EQ(GroupCells(grid, a, axis), group);
      }
      for (size_t from = 0; from <= grid.axes(); ++from) {
        std::vector<CellIndex> expected;
        for (CellIndex b = 0; b < grid.cells(); ++b) {
          const auto other = Coordinates(grid, b);
          const bool agree = std::equal(at.begin() + static_cast<long>(from), at.end(),
                                        other.begin() + static_cast<long>(from));
          EXPECT_EQ(AgreeFrom(grid, a, b, from), agree);
          if (agree && b != a) expected.push_back(b);
        }
        EXPECT_EQ(StandInCells(grid, a, from), expected);
      }
    }
  }
}

}  // namespace
}  // namespace crowdsurf::worker
