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

bool Averaging::FetchesItsBase() const {
  return OneBase() && !Gathers() && catch_up_.busy() && job_.averaging <= catch_up_.averaging();
}

// The parent ended a number that is this view's. Here nobody knows whose values are in that
// average, so no units can be dealt from it: it is no base, and members that ended the number here
// have one.
void Averaging::DisownBase() {
  committed_.root = Digest();
  overwritten_ = true;
  hashing_ = false;
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

// The base has no name that others would know it by: whole models are averaged next, unless the
// others have gone on.
void Averaging::LoseBase(Actions& out) {
  StrategyActions none;
  strategy_->OnEvent(Time(), BaseLost{}, none);
  TellWhole(out);
}

}  // namespace crowdsurf::worker
