// Stand-ins and catch-up: who speaks for a missing cell, and from whom a late member takes the
// mean.
//
// After rounds 0..t-1 of an averaging all members that agree on the axes t..d-1 hold the same bits
// (they are one class of round t), so any of them can say what a missing cell of their class would
// have said, and any of them can bring a late member of it up to date. Pure functions of the grid
// and of who holds what; the peer (averaging.h) and `simulate averaging` call exactly these.
// Source: docs/averaging.md. A class is looked through in one order everywhere:
// the cell's own group of round t-1 first, because its members hold one decided value of one
// instance; then the other groups of round t-1, starting after its own so that holes spread over
// speakers. All speakers of a cell are of one of these groups, the first in which anybody is
// seated: values of two groups are equal bits (when none of them lost anybody) but values of two
// instances, and owners that hear different ones first cannot tell that from a dispute.
#pragma once

#include <absl/functional/function_ref.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "worker/core/view/grid.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

// True when the member of a cell takes part and holds the mean of rounds 0..t-1 (for t = 0: its own
// snapshot).
using Holds = absl::FunctionRef<bool(CellIndex)>;

// Speakers of one missing cell, at most. More would make the slices smaller, but every one is a
// connection for the owners; fewer than two would leave nobody when one dies.
inline constexpr size_t kMaxSpeakers = 8;

// Cells other than `cell` of its class at `round` that hold, in the order above, at most `most`.
// round == 0: none. O(cells looked at); ends at the `most`-th found.
std::vector<CellIndex> Holders(const Grid& grid, CellIndex cell, size_t round, Holds holds,
                               size_t most);

// Whose value stands at each rank of the group of `cell` on axis `round`: the rank's own cell where
// it holds, else its first stand-in, else nobody. Lock-step view of one round. Pre: round < axes.
std::vector<std::optional<CellIndex>> Contributors(const Grid& grid, CellIndex cell, size_t round,
                                                   Holds holds);

// From whom a member of `cell` that does not hold may take the mean of rounds 0..round-1.
std::optional<CellIndex> CatchUpDonor(const Grid& grid, CellIndex cell, size_t round, Holds holds);

// One rank of a group as everybody derives it from the seating.
struct PlannedCell {
  CellIndex cell = 0;
  std::optional<PeerId> member;  // nullopt: a hole
  std::vector<PeerId> speakers;  // in slice order: speaker j of k sends the chunks c, c mod k = j
  bool operator==(const PlannedCell&) const = default;
};

enum class StandIns : uint8_t { kNone, kSpeak };

// The ordered list of the group of `cell` on `axis`. `stand_ins`: rounds are those of one averaging
// (round == axis), so missing cells have speakers; false for `rounds: One`. Every cell of round >=
// 1 gets speakers: a hole needs them at once, a member only if it is lost in the round.
std::vector<PlannedCell> PlanGroup(const Seating& seating, CellIndex cell, size_t axis,
                                   StandIns stand_ins);

// A hole that the member of a cell must speak for in a round.
struct SpeakerDuty {
  CellIndex hole = 0;
  size_t slice = 0;   // j
  size_t slices = 1;  // k
  bool operator==(const SpeakerDuty&) const = default;
};

// The holes of round `round` for which `self` is a speaker, ascending. Never a hole of its own
// group.
std::vector<SpeakerDuty> DutiesOf(const Seating& seating, CellIndex self, size_t round);

}  // namespace crowdsurf::worker
