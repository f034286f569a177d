#include "worker/core/view/grid.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// Depth-first over ascending tuples of radices; the last radix is computed, not searched.
class GridSearch {
 public:
  GridSearch(size_t members, size_t max_group, size_t axes)
      : members_(members), max_group_(max_group), axes_(axes) {}

  Grid Best() {
    Extend(1);
    return Grid{best_};
  }

 private:
  void Extend(size_t product) {
    const size_t least = current_.empty() ? 2 : current_.back();
    if (current_.size() + 1 == axes_) {
      // The least last radix that reaches all members; radices ascend.
      const size_t last = std::max(least, (members_ + product - 1) / product);
      if (last <= max_group_) Consider(product * last, last);
      return;
    }
    for (size_t radix = least; radix <= max_group_; ++radix) {
      current_.push_back(static_cast<uint16_t>(radix));
      Extend(product * radix);
      current_.pop_back();
    }
  }

  void Consider(size_t product, size_t last) {
    if (product > best_product_) return;
    current_.push_back(static_cast<uint16_t>(last));
    // Of equal products: the least largest radix, then the greatest first ones (FitGrid).
    const bool better = product < best_product_ || current_.back() < best_.back() ||
                        (current_.back() == best_.back() && current_ > best_);
    if (better) {
      best_product_ = product;
      best_ = current_;
    }
    current_.pop_back();
  }

  const size_t members_;
  const size_t max_group_;
  const size_t axes_;
  std::vector<uint16_t> current_;
  std::vector<uint16_t> best_;
  size_t best_product_ = SIZE_MAX;
};

}  // namespace

size_t Grid::cells() const { return radices.empty() ? 0 : SuffixProduct(*this, 0); }

Grid FitGrid(size_t members, size_t max_group) {
  CHECK_GE(members, 1U);
  CHECK_LE(members, kMaxCells);
  CHECK_GE(max_group, 2U);
  CHECK_LE(max_group, 64U);
  if (members == 1) return Grid{{1}};
  size_t axes = 1;
  // The fewest axes whose product can reach `members`.
  for (size_t reach = max_group; reach < members; reach *= max_group) ++axes;
  return GridSearch(members, max_group, axes).Best();
}

std::vector<uint16_t> Coordinates(const Grid& grid, CellIndex cell) {
  CHECK_LT(cell, grid.cells());
  std::vector<uint16_t> coordinates(grid.axes());
  for (size_t axis = grid.axes(); axis-- > 0;) {
    coordinates[axis] = static_cast<uint16_t>(cell % grid.radices[axis]);
    cell /= grid.radices[axis];
  }
  return coordinates;
}

CellIndex CellAt(const Grid& grid, const std::vector<uint16_t>& coordinates) {
  CHECK_EQ(coordinates.size(), grid.axes());
  CellIndex cell = 0;
  for (size_t axis = 0; axis < grid.axes(); ++axis) {
    CHECK_LT(coordinates[axis], grid.radices[axis]);
    cell = cell * grid.radices[axis] + coordinates[axis];
  }
  return cell;
}

size_t SuffixProduct(const Grid& grid, size_t from) {
  CHECK_LE(from, grid.axes());
  size_t product = 1;
  for (size_t axis = from; axis < grid.axes(); ++axis) product *= grid.radices[axis];
  return product;
}

std::vector<CellIndex> GroupCells(const Grid& grid, CellIndex cell, size_t axis) {
  CHECK_LT(axis, grid.axes());
  // Coordinate 0 is the most significant digit, so cells of a group lie `step` apart.
  CHECK_LT(cell, grid.cells());
  const size_t step = SuffixProduct(grid, axis + 1);
  const size_t digit = cell / step % grid.radices[axis];
  const size_t first = cell - digit * step;
  std::vector<CellIndex> cells(grid.radices[axis]);
  for (size_t i = 0; i < cells.size(); ++i) cells[i] = static_cast<CellIndex>(first + i * step);
  return cells;
}

bool AgreeFrom(const Grid& grid, CellIndex a, CellIndex b, size_t from) {
  const size_t suffix = SuffixProduct(grid, from);
  return a % suffix == b % suffix;
}

std::vector<CellIndex> StandInCells(const Grid& grid, CellIndex cell, size_t from) {
  CHECK_LT(cell, grid.cells());
  const size_t suffix = SuffixProduct(grid, from);
  std::vector<CellIndex> cells;
  for (size_t other = cell % suffix; other < grid.cells(); other += suffix)
    if (other != cell) cells.push_back(static_cast<CellIndex>(other));
  return cells;
}

}  // namespace crowdsurf::worker
