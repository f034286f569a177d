// Turns: with `rounds: One` the averagings of a view take turns at the axes of its grid.
//
// A view's first averaging is whole: a round on every axis, after which all members are equal. Then
// every second averaging is one round on one axis, so that the values of members differ, and those
// between count the job's samples over all axes and carry no values. With one axis a round is an
// averaging, and every averaging is whole. A value; any thread. Source: docs/strategies/moshpit.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/core/view/averaging_id.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

enum class Turn : uint8_t { kWhole, kOneRound, kCount };

class Turns {
 public:
  Turns() = default;  // of no view: every averaging is whole
  explicit Turns(const View& view) : first_(view.first_averaging), axes_(view.grid.axes()) {
    taken_ = view.config.strategy == StrategyKind::kMoshpit &&
             view.config.rounds == RoundsMode::kOne && axes_ > 1;
  }

  // False: every averaging is whole, and members that complete one are equal.
  bool taken() const { return taken_; }
  Turn Of(AveragingId averaging) const {
    if (!taken_ || averaging <= first_) return Turn::kWhole;
    return After(averaging) % 2 == 1 ? Turn::kOneRound : Turn::kCount;
  }
  // Pre: Of(averaging) is kOneRound.
  size_t AxisOf(AveragingId averaging) const {
    return static_cast<size_t>(After(averaging) / 2 % axes_);
  }

 private:
  uint64_t After(AveragingId averaging) const { return averaging.value() - first_.value(); }

  bool taken_ = false;
  AveragingId first_;
  uint64_t axes_ = 1;
};

}  // namespace crowdsurf::worker
