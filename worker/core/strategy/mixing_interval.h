// MixingInterval: when a strategy on a graph takes its next snapshot: every
// spec.averaging.interval.
//
// Owner: a strategy, single sequence. Value.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "worker/core/strategy/strategy_actions.h"
#include "worker/core/view/averaging_config.h"

namespace crowdsurf::worker {

class MixingInterval {
 public:
  void SetLength(const AveragingConfig& config) {
    unit_ = config.interval_unit;
    length_ = config.interval;
  }
  // The trainer's totals.
  void OnPace(uint64_t step, double samples);
  // The next interval begins now, at the totals told last.
  void Begin(Time now);
  // The next interval begins with a snapshot of these totals. The trainer may have told later ones
  // already: then those stay.
  void BeginAt(Time now, uint64_t step, double samples);

  bool IsOver(Time now) const;
  // Has the owner told when it is over: by PaceTold, or by StrategyTimer. Pre: it is not over.
  StrategyAction Wake() const;

 private:
  IntervalUnit unit_ = IntervalUnit::kSteps;
  double length_ = 1;
  uint64_t step_ = 0;
  double samples_ = 0;
  // Where the present interval began.
  uint64_t from_step_ = 0;
  double from_samples_ = 0;
  Time from_time_;
};

}  // namespace crowdsurf::worker
