// Agent: the units of the trainer's sub-network (IST).
#include "worker/core/subnet/index_sets.h"
#include "worker/edge/agent/agent_impl.h"

namespace crowdsurf::worker {

void Agent::Impl::Do(Time, WallTime, const TellTrainerUnits& action) {
  units_ = action;
  TellUnits();
}

// One region holds them, so a trainer that still has to copy the ones before is waited for. Its
// snapshots say meanwhile that they are of others.
void Agent::Impl::TellUnits() {
  if (!units_ || !trainer_ || !link_->SetIndexSets(EncodeIndexSets(units_->sets))) return;
  told_units_ = units_->by;
  units_.reset();
}

}  // namespace crowdsurf::worker
