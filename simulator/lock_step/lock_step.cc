#include "simulator/lock_step/lock_step.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/core/view/stand_in.h"

namespace crowdsurf::simulator {

using worker::CellIndex;

template <class Scalar>
LockStep<Scalar>::LockStep(worker::Grid grid, std::vector<CellIndex> members, size_t dimensions)
    : grid_(std::move(grid)),
      members_(std::move(members)),
      dimensions_(dimensions),
      seats_(grid_.cells()),
      values_(grid_.cells() * dimensions) {
  for (const CellIndex cell : members_) {
    CHECK_LT(cell, seats_.size());
    seats_[cell].taken = true;
    // As if an averaging had just been completed.
    seats_[cell].level = grid_.axes();
  }
}

template <class Scalar>
void LockStep<Scalar>::Round(absl::FunctionRef<bool(CellIndex)> up, MissedEnd missed) {
  const size_t axis = rounds_ % grid_.axes();
  for (const CellIndex cell : members_) seats_[cell].up = up(cell);
  // A new averaging: those that missed the end of the last one adopt it, or keep their own.
  if (axis == 0) {
    if (missed == MissedEnd::kAdopt) Adopt();
    for (const CellIndex cell : members_) {
      seats_[cell].level = 0;
      seats_[cell].weight = seats_[cell].own_weight;
    }
  }
  // Those that were absent fetch the mean of their class first, and so take part.
  CatchUp(axis);
  Reduce(axis);
  ++rounds_;
}

template <class Scalar>
void LockStep<Scalar>::Adopt() {
  // Any member that completed the last averaging: all of these hold the same.
  const auto committed = std::find_if(members_.begin(), members_.end(),
                                      [&](CellIndex cell) { return Holds(cell, grid_.axes()); });
  if (committed == members_.end()) return;
  for (const CellIndex cell : members_)
    if (seats_[cell].up && seats_[cell].level < grid_.axes()) Copy(*committed, cell);
}

template <class Scalar>
void LockStep<Scalar>::Copy(CellIndex from, CellIndex to) {
  std::copy_n(Value(from).begin(), dimensions_, Value(to).begin());
}

template <class Scalar>
void LockStep<Scalar>::CatchUp(size_t axis) {
  const auto holds = [&](CellIndex cell) { return Holds(cell, axis); };
  for (const CellIndex cell : members_) {
    if (!seats_[cell].up || seats_[cell].level >= axis) continue;
    if (const auto donor = worker::CatchUpDonor(grid_, cell, axis, holds)) {
      Copy(*donor, cell);
      seats_[cell].weight = seats_[*donor].weight;
      seats_[cell].level = axis;
    }
  }
}

template <class Scalar>
void LockStep<Scalar>::Reduce(size_t axis) {
  std::vector<Scalar> after = values_;
  std::vector<bool> done(seats_.size());
  for (const CellIndex first : members_) {
    if (done[first]) continue;
    const std::vector<CellIndex> group = worker::GroupCells(grid_, first, axis);
    for (const CellIndex cell : group) done[cell] = true;
    ReduceGroup(group, axis, after);
  }
  // After all groups, since Holds must answer as at the start until then.
  values_ = std::move(after);
  for (const CellIndex cell : members_)
    if (Holds(cell, axis)) {
      ++seats_[cell].level;
      seats_[cell].weight = seats_[cell].next_weight;
    }
}

// Values and weights after the round are kept aside: members of this group may yet speak, with what
// they hold now, for cells of groups that come later.
template <class Scalar>
void LockStep<Scalar>::ReduceGroup(const std::vector<CellIndex>& group, size_t axis,
                                   std::vector<Scalar>& after) {
  const auto holds = [&](CellIndex cell) { return Holds(cell, axis); };
  if (std::none_of(group.begin(), group.end(), holds)) return;
  std::vector<Scalar> sum(dimensions_);
  double weight = 0;
  // Missing members are spoken for by their class (worker/core/view/stand_in.h).
  for (const auto contributor : worker::Contributors(grid_, group.front(), axis, holds)) {
    if (!contributor) continue;
    const auto factor = static_cast<Scalar>(seats_[*contributor].weight);
    const std::span<const Scalar> value = std::as_const(*this).Value(*contributor);
    for (size_t i = 0; i < dimensions_; ++i) sum[i] += factor * value[i];
    weight += seats_[*contributor].weight;
  }
  const auto factor = static_cast<Scalar>(1.0 / weight);
  for (const CellIndex cell : group) {
    if (!holds(cell)) continue;
    for (size_t i = 0; i < dimensions_; ++i) after[cell * dimensions_ + i] = sum[i] * factor;
    seats_[cell].next_weight = weight;
  }
}

template class LockStep<float>;
template class LockStep<double>;

}  // namespace crowdsurf::simulator
