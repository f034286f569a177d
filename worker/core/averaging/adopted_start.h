// AdoptedStart: others' state from which a joiner's trainer began, until an average replaces it.
//
// A transfer takes its time, and the others go on meanwhile. So what a joiner holds may be an older
// average, or one whose parts are of several. Either is good to train from, and stale in a mean:
// its first snapshot has no weight, and the result takes its place. Owner: Averaging; single
// sequence. A value. Source: docs/averaging.md, Joiners.
#pragma once

#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

class AdoptedStart {
 public:
  AdoptedStart() = default;
  // The trainer has adopted this average; mixed: parts of it are of averages before.
  AdoptedStart(AveragingId average, bool mixed)
      : adopted_(true), mixed_(mixed), average_(average) {}

  // It has, and no average has taken the place of that since.
  bool adopted() const { return adopted_; }
  bool mixed() const { return mixed_; }
  // What it holds is neither of the last two averages of the job, whose newest is `job`.
  bool IsOld(AveragingId job) const { return adopted_ && (mixed_ || average_ + 1 < job); }

 private:
  bool adopted_ = false;
  bool mixed_ = false;
  AveragingId average_;
};

}  // namespace crowdsurf::worker
