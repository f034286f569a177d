// TurnWeight: what a member's values weigh with `rounds: One`.
//
// Members' values differ, so this is the weight of the whole vector, not of a change from what all
// have: samples say how fast its trainer is. The count takes samples away meanwhile, so they are
// those since a mean. In a whole averaging they are those since the mean before the last: right
// after a round nobody has trained, and values would weigh nothing or all by chance. A trainer that
// is in no mean yet takes that of the others, and weighs from then on. A value; any thread. Source:
// docs/strategies/moshpit.md, One round.
#pragma once

#include "worker/core/view/averaging_choices.h"

namespace crowdsurf::worker {

class TurnWeight {
 public:
  TurnWeight() = default;
  // Where totals of samples begin: a trainer registers, or takes others' state.
  void OnTrainer(double total) { *this = {total, total, true, false}; }
  // Its snapshot of that total is in a whole average, which all members have now.
  void OnWhole(double total) { *this = {total, total, false, false}; }
  // It is in the mean of its group, with that weight. 0: of members that are all new.
  void OnRound(double total, double weight) { *this = {total, last_, fresh_ && weight == 0, true}; }
  // An averaging of which other members have other values than this one is over.
  void OnApart() { apart_ = true; }

  // Since the last whole averaging others have got other values.
  bool apart() const { return apart_; }
  // Of the trainer's snapshot with that total, in a single round and in a whole averaging.
  double InRound(double total, Weighting weighting) const {
    if (fresh_) return 0;
    return weighting == Weighting::kEqual ? 1 : total - last_;
  }
  double InWhole(double total, Weighting weighting) const {
    const double weight = weighting == Weighting::kEqual ? 1 : total - before_;
    return fresh_ ? kFreshShare * weight : weight;
  }

 private:
  TurnWeight(double last, double before, bool fresh, bool apart)
      : last_(last), before_(before), fresh_(fresh), apart_(apart) {}

  // Of a trainer that is in no mean yet, in a whole averaging. Its model may be an average of hours
  // ago, so that it moves the mean of the others by a millionth of the way; and where all are new,
  // their weights are as they would be.
  static constexpr double kFreshShare = 1.0 / (1 << 20);

  double last_ = 0;    // the trainer's total in its last mean
  double before_ = 0;  // in the one before
  bool fresh_ = true;  // it is in no mean yet
  bool apart_ = false;
};

}  // namespace crowdsurf::worker
