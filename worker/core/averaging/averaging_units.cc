// IST: which base the units are dealt from, and who has to take it first (averaging.h).
#include <utility>

#include "worker/core/averaging/averaging.h"
#include "worker/core/port/config.h"

namespace crowdsurf::worker {

void Averaging::SetUnits() {
  if (!trainer_) return;
  UnitSchema units = trainer_->units;
  // Tensors that are not known have no units: all members share all of them.
  if (units.elements() != trainer_->elements)
    units = UnitSchema::Of({{.name = "model", .shape = {trainer_->elements}, .axes = {}}}).value();
  strategy_->SetUnits(units, static_cast<uint32_t>(config_.chunk_elements));
}

// True when the others have dealt units from a base that this peer does not have, or not with those
// that it was made of: it can neither give values to their round nor take the result.
bool Averaging::LacksUnits() const {
  if (OfThisView(job_.averaging) && job_.averaging > committed_.averaging) return true;
  return IsDealt() && committed_.cells.empty();
}

// In another view, or with another strategy, whole models are trained until an average says which
// units.
void Averaging::TellWhole(Actions& out) {
  if (std::exchange(told_units_, AveragingId()).is_zero()) return;
  out.push_back(TellTrainerUnits{});
}

// A member that has fetched a base may not know yet whose values are in it.
void Averaging::LearnCells(Time now, const Committed& theirs, Actions& out) {
  const bool known = !committed_.cells.empty() || theirs.cells.empty();
  if (known || theirs.averaging != committed_.averaging || theirs.root != BaseRoot()) return;
  committed_.cells = theirs.cells;
  DealAnew(now, out);
}

void Averaging::DealAnew(Time now, Actions& out) {
  if (!OfThisView(committed_.averaging) || committed_.cells.empty()) return;
  StrategyActions actions;
  strategy_->OnEvent(now, BaseTaken{committed_.averaging, committed_.cells}, actions);
  Run(now, actions, out);
}

// What others have dealt from, and this peer does not have. Bases of earlier views are of no use: a
// view's first average is a plain one.
const Committed* Averaging::MissedDeal() const {
  const AveragingId own = HoldsBase() ? committed_.averaging : AveragingId();
  const Committed* beyond = catch_up_.Beyond(own, seating_, down_);
  return beyond != nullptr && OfThisView(beyond->averaging) ? beyond : nullptr;
}

// The base has no name that others would know it by: whole models are averaged next, unless the
// others have gone on.
void Averaging::LoseBase(Actions& out) {
  StrategyActions none;
  strategy_->OnEvent(Time(), BaseLost{}, none);
  TellWhole(out);
}

}  // namespace crowdsurf::worker
