// Grid: the mixed-radix grid that a view's members sit in, fitted to N.
//
// Pure functions. A cell is an index in row-major order of the radices; axis 0 is the most
// significant digit. In round t of an averaging the members that differ only on axis (t mod d) form
// a group. Source: Moshpit SGD (Ryabinin et al. 2021), section 3. Differs
// from the paper: radices are fitted to N instead of a fixed side M, cells are sticky instead of
// re-indexed by chunk numbers, and a missing cell is spoken for by stand-ins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace crowdsurf::worker {

using CellIndex = uint32_t;

// 2^17 holds 100,000 members with radix 2; a view that claims more is garbled.
inline constexpr size_t kMaxCells = 1U << 17;

struct Grid {
  std::vector<uint16_t> radices;  // each >= 1, ascending; empty: no grid

  size_t axes() const { return radices.size(); }
  size_t cells() const;  // product of the radices; 0 when there is no grid
  bool operator==(const Grid&) const = default;
};

// d = the fewest axes whose product can reach `members` with radices <= max_group; then the least
// product >= members, then the least largest radix, then the greatest first ones (nearest to
// equal). Pre: 1 <= members <= kMaxCells, 2 <= max_group <= 64. members == 1 gives {1}. O(number
// of ascending tuples of d - 1 radices): at most a few thousand.
Grid FitGrid(size_t members, size_t max_group);

std::vector<uint16_t> Coordinates(const Grid& grid, CellIndex cell);  // pre: cell < cells()
CellIndex CellAt(const Grid& grid, const std::vector<uint16_t>& coordinates);

// The cells of the group of `cell` on `axis`, ascending in that axis' coordinate (their order is
// the rank order).
std::vector<CellIndex> GroupCells(const Grid& grid, CellIndex cell, size_t axis);

// Product of the radices of the axes from..d-1; 1 for from == d. Two cells that are equal modulo
// it agree on those axes, because axis 0 is the most significant digit. Pre: from <= axes().
size_t SuffixProduct(const Grid& grid, size_t from);

// True when the cells have the same coordinates on the axes from..d-1: after rounds 0..from-1 they
// hold the same bits.
bool AgreeFrom(const Grid& grid, CellIndex a, CellIndex b, size_t from);

// All cells other than `cell` that agree with it on the axes from..d-1, ascending. from == 0: none.
std::vector<CellIndex> StandInCells(const Grid& grid, CellIndex cell, size_t from);

}  // namespace crowdsurf::worker
