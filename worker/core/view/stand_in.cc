#include "worker/core/view/stand_in.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// Of the class in that order, only the first group of round - 1 in which anybody is seated.
std::vector<PeerId> SpeakersOf(const Seating& seating, CellIndex cell, size_t round) {
  std::vector<PeerId> speakers;
  if (round == 0) return speakers;
  const auto seated = [&](CellIndex c) { return seating.At(c) != nullptr; };
  const Grid& grid = seating.view().grid;
  const size_t group = SuffixProduct(grid, round - 1);
  std::optional<size_t> first;
  for (const CellIndex c : Holders(grid, cell, round, seated, kMaxSpeakers)) {
    // The first holder is of the first group with anybody seated: its members speak, and no others.
    if (!first) first = c / group;
    if (c / group != *first) break;
    speakers.push_back(seating.At(c)->id);
  }
  return speakers;
}

}  // namespace

std::vector<CellIndex> Holders(const Grid& grid, CellIndex cell, size_t round, Holds holds,
                               size_t most) {
  std::vector<CellIndex> found;
  if (round == 0 || most == 0) return found;
  // cell = high * group + digit * step + low: `high` numbers the groups of round - 1 that share the
  // class, `digit` its members.
  const size_t step = SuffixProduct(grid, round);
  const size_t group = SuffixProduct(grid, round - 1);
  const size_t groups = grid.cells() / group;
  const size_t own = cell / group;
  const size_t low = cell % step;
  for (size_t i = 0; i < groups; ++i) {
    const size_t first = (own + i) % groups * group + low;
    for (size_t digit = 0; digit < grid.radices[round - 1]; ++digit) {
      const auto candidate = static_cast<CellIndex>(first + digit * step);
      if (candidate == cell || !holds(candidate)) continue;
      found.push_back(candidate);
      if (found.size() == most) return found;
    }
  }
  return found;
}

std::optional<CellIndex> CatchUpDonor(const Grid& grid, CellIndex cell, size_t round, Holds holds) {
  const auto found = Holders(grid, cell, round, holds, 1);
  if (found.empty()) return std::nullopt;
  return found.front();
}

std::vector<std::optional<CellIndex>> Contributors(const Grid& grid, CellIndex cell, size_t round,
                                                   Holds holds) {
  std::vector<std::optional<CellIndex>> contributors;
  for (const CellIndex rank : GroupCells(grid, cell, round))
    contributors.push_back(holds(rank) ? std::optional(rank)
                                       : CatchUpDonor(grid, rank, round, holds));
  return contributors;
}

std::vector<PlannedCell> PlanGroup(const Seating& seating, CellIndex cell, size_t axis,
                                   StandIns stand_ins) {
  std::vector<PlannedCell> plan;
  for (const CellIndex c : GroupCells(seating.view().grid, cell, axis)) {
    PlannedCell entry{.cell = c, .member = std::nullopt, .speakers = {}};
    if (const Member* member = seating.At(c)) entry.member = member->id;
    if (stand_ins == StandIns::kSpeak) entry.speakers = SpeakersOf(seating, c, axis);
    plan.push_back(std::move(entry));
  }
  return plan;
}

std::vector<SpeakerDuty> DutiesOf(const Seating& seating, CellIndex self, size_t round) {
  std::vector<SpeakerDuty> duties;
  if (round == 0) return duties;
  const Member* me = seating.At(self);
  CHECK(me != nullptr);
  // The cells of its class: after `round` rounds their vectors equal its own.
  for (const CellIndex hole : StandInCells(seating.view().grid, self, round)) {
    if (seating.At(hole) != nullptr) continue;
    const auto speakers = SpeakersOf(seating, hole, round);
    const auto at = std::find(speakers.begin(), speakers.end(), me->id);
    if (at == speakers.end()) continue;
    duties.push_back({.hole = hole,
                      .slice = static_cast<size_t>(at - speakers.begin()),
                      .slices = speakers.size()});
  }
  return duties;
}

}  // namespace crowdsurf::worker
