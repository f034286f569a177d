// LockStep: averagings over a grid, one whole round at a time, by the core's own grid, stand-in and
// catch-up functions.
//
// No messages and no time: what a round would decide is computed at once, from who is up in it. The
// `simulate averaging` command and the paper tests stand on it; frames, deaths in mid-round and
// bytes are those of simulator/chaos. Values are `dimensions` scalars a member, weights travel with
// them. Single sequence. Memory O(cells * dimensions).
#pragma once

#include <absl/functional/function_ref.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/core/view/grid.h"

namespace crowdsurf::simulator {

// What a member does that missed the end of the averaging before, when the next one begins.
enum class MissedEnd : uint8_t { kKeepOwn, kAdopt };

template <class Scalar>
class LockStep {
 public:
  // Pre: `members` are cells of the grid, ascending.
  LockStep(worker::Grid grid, std::vector<worker::CellIndex> members, size_t dimensions);

  const worker::Grid& grid() const { return grid_; }
  const std::vector<worker::CellIndex>& members() const { return members_; }
  std::span<Scalar> Value(worker::CellIndex cell) {
    return std::span<Scalar>(values_).subspan(cell * dimensions_, dimensions_);
  }
  std::span<const Scalar> Value(worker::CellIndex cell) const {
    return std::span<const Scalar>(values_).subspan(cell * dimensions_, dimensions_);
  }
  // Samples of its own since the last averaging; 1 unless set.
  void SetWeight(worker::CellIndex cell, double weight) { seats_[cell].own_weight = weight; }

  // The next round, among the members that are up. Round 0 of an averaging takes the values as they
  // are; with `kAdopt` a member that missed the end of the averaging before takes any committed
  // vector first. A late member catches up, else it sits the averaging out.
  void Round(absl::FunctionRef<bool(worker::CellIndex)> up, MissedEnd missed);
  size_t rounds() const { return rounds_; }
  // True when the member holds the result of all rounds of the averaging just run.
  bool Completed(worker::CellIndex cell) const { return seats_[cell].level == grid_.axes(); }

 private:
  struct Seat {
    bool taken = false;
    bool up = false;
    size_t level = 0;  // rounds of this averaging whose result it holds
    double weight = 1;
    double next_weight = 1;
    double own_weight = 1;
  };
  bool Holds(worker::CellIndex cell, size_t level) const {
    return seats_[cell].up && seats_[cell].level == level;
  }
  void Adopt();
  void Copy(worker::CellIndex from, worker::CellIndex to);
  void CatchUp(size_t axis);
  void Reduce(size_t axis);
  void ReduceGroup(const std::vector<worker::CellIndex>& group, size_t axis,
                   std::vector<Scalar>& after);

  const worker::Grid grid_;
  const std::vector<worker::CellIndex> members_;
  const size_t dimensions_;
  std::vector<Seat> seats_;  // by cell
  std::vector<Scalar> values_;
  size_t rounds_ = 0;
};

extern template class LockStep<float>;
extern template class LockStep<double>;

}  // namespace crowdsurf::simulator
