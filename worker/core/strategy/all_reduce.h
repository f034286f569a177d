// AllReduce: one group of everybody, one round an averaging; N <= 64 because masks are 64 bits.
//
// The baseline that Moshpit is compared with. Source: butterfly all-reduce; the
// grid of its view has one axis (view_plan.h). Differs: none. Single sequence.
#pragma once

#include "worker/core/strategy/moshpit.h"

namespace crowdsurf::worker {

// With one axis a trip over the grid is one all-reduce, so Moshpit's steps are AllReduce's.
class AllReduce : public Moshpit {
 public:
  Needs needs() const override { return NeedsOf(StrategyKind::kAllReduce); }
};

}  // namespace crowdsurf::worker
