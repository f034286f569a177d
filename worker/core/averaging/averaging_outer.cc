// With an outer optimizer, IST, Int8 or gradients: the base at the end of an averaging, and a
// member that missed one (averaging.h).
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/core/averaging/averaging.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/vector/outer_step.h"

namespace crowdsurf::worker {

// ---- the base

bool Averaging::HoldsBase() const {
  // The base lies in kInboxA always: docs/decisions/worker/030-the-base-stays-in-one-inbox.md
  return KeepsBase() && committed_region_ == Region::kInboxA && !overwritten_;
}

bool Averaging::WarmsUp(double job_samples) const {
  return HasOuter() && job_samples < static_cast<double>(OuterOf().warmup_samples);
}

bool Averaging::StepsFromElsewhere(const Stake& stake) const {
  if (Gathers()) return stake.base != BaseRoot();
  // The first average of a view is a plain one, whatever it was measured from.
  const bool plain = HasChanges() ? !changes_ : HasUnits() && !IsDealt();
  if (plain && !HasOuter()) return false;
  return !stake.base.none() && stake.base != BaseRoot();
}

Digest Averaging::BaseRoot() const { return HoldsBase() ? committed_.root : Digest(); }

StateParts Averaging::PartsOf() const {
  if (Gathers()) return StateParts::kTrainersStep;
  return HasOuter() && OuterOf().momentum > 0 ? StateParts::kAverageAndVelocity
                                              : StateParts::kAverage;
}

// Who hears a root may fetch what it names from this peer.
Committed Averaging::Announced() const {
  Committed said = job_;
  if (!KeepsBase()) return said;
  if (Gathers() && committed_.averaging >= said.averaging) said = committed_;
  const bool holds = committed_.averaging == said.averaging;
  said.root = holds ? BaseRoot() : Digest();
  said.cells = holds ? committed_.cells : RankSet();
  // Members tell by the count which of two bases is the later one.
  if (holds && OneBase()) said.job_samples = committed_.job_samples;
  return said;
}

RunKernel Averaging::StepTo(Region mean) {
  const OuterOptimizer& outer = OuterOf();
  // By the count that the contributors agreed on, so all decide the same.
  const bool step = HasOuter() && !stake_.base.none() && !WarmsUp(stake_.before.samples);
  RunKernel kernel{.kernel = step ? MixKernel::kOuterStep : MixKernel::kOuterBegin,
                   .range = {0, trainer_->elements},
                   .regions = {Region::kInboxA, mean},
                   .scalars = {}};
  if (changes_) kernel.kernel = MixKernel::kOuterChange;
  if (HasOuter() && outer.momentum > 0) kernel.regions.push_back(Region::kVelocity);
  if (step) {
    const OuterRule rule{.learning_rate = outer.learning_rate,
                         .momentum = outer.momentum,
                         .nesterov = outer.kind == OuterKind::kNesterov};
    for (const double scalar : rule.scalars()) kernel.scalars.push_back(scalar);
  }
  if (HasOuter()) (step ? metrics_.outer_steps : metrics_.outer_begins)->Add();
  return kernel;
}

// The mean of all is in `mean`, or that of their changes. False: they stepped from a base that this
// peer does not have.
bool Averaging::FinishStep(Time now, Region mean, Actions& out) {
  if (StepsFromElsewhere(stake_) || (changes_ && stake_.base.none())) return false;
  if (Gathers()) return FinishGradient(now, mean, out);
  if (changes_ && in_mean_) {
    // From the snapshot and the base that it was taken from: before either is overwritten.
    out.push_back(RunKernel{.kernel = MixKernel::kKeepRest,
                            .range = {0, trainer_->elements},
                            .regions = {Region::kRest, Region::kOutbox, Region::kInboxA},
                            .scalars = {has_rest_ ? 1.0 : 0.0}});
    has_rest_ = true;
  }
  // Rounds that still serve what lies there are closed before the kernel writes over it.
  rounds_.OnOverwritten(now, Region::kInboxA, out);
  out.push_back(StepTo(mean));
  without_base_ = 0;
  return true;
}

void Averaging::OnStateHashed(Time now, const StateHashed& hashed, Actions& out) {
  if (first_.stage == FirstStage::kHashing && hashed.averaging == first_.number)
    return OnFirstHashed(now, hashed, out);
  // The hash of a value that another one has replaced since.
  if (hashed.averaging != committed_.averaging || overwritten_) return;
  committed_.root = hashed.root;
  if (!std::exchange(hashing_, false)) return;
  if (HasUnits() && hashed.root.none()) LoseBase(out);
  const auto waits = std::exchange(waits_, std::nullopt);
  if (waits && Ready() && idle() && *waits >= next_) return TakePart(now, *waits, out);
  CheckDue(now, out);
}

void Averaging::ForgetHeld() {
  committed_ = Committed();
  catch_up_.Drop();
  hashing_ = overwritten_ = false;
}

// ---- taking part, or not

// Averaging `averaging` has begun, and this peer is in no other one.
void Averaging::TakePart(Time now, AveragingId averaging, Actions& out) {
  if (hashing_ || FetchesItsBase()) {
    waits_ = averaging;
    return;
  }
  const bool behind = catch_up_.busy() || Missed() != nullptr || LacksBase();
  behind ? SitOut(now, averaging, out) : StartPublish(now, averaging, out);
}

// True when the others measure from a base that this peer does not have, or, for units, not with
// those that it was made of: it can neither give values to their round nor take the result.
bool Averaging::LacksBase() const {
  if (!HasUnits() && !HasChanges()) return false;
  // All its holders may be gone, and the view stays: then whole values are averaged.
  const bool later = OfThisView(job_.averaging) && job_.averaging > committed_.averaging &&
                     job_.averaging > given_up_;
  return later || (HasUnits() && IsDealt() && committed_.cells.empty());
}

void Averaging::SitOut(Time now, AveragingId averaging, Actions& out) {
  number_ = averaging;
  announced_ = false;
  due_.erase(due_.begin(), due_.upper_bound(averaging));
  ++abandoned_;
  metrics_.averagings_abandoned->Add();
  log_.Info("averaging sat out: its base is another", {{"averaging", averaging.value()}});
  if (OneBase()) {
    // Without the base it has nothing to give, however often it has to try; and where nobody is
    // left who has it, it would be due at once for the next averaging, and sit that out as well.
    catch_up_.TryAnew();
    if (!Gathers()) left_behind_.OnSatOut(now);
    if (!Gathers() && !catch_up_.busy() && Missed() == nullptr) GoWithoutBase(out);
    mark_ = {.step = progress_.step, .samples = progress_.samples, .time = now};
  }
  GoOn(now, averaging, out);
}

// Nobody serves the later base. An older one is of no use in a round: of two members the one with
// the later base stays. Members without one average whole values.
void Averaging::GoWithoutBase(Actions& out) {
  if (++without_base_ < kMaxWithoutBase) return;
  without_base_ = 0;
  given_up_ = job_.averaging;
  committed_.root = Digest();
  if (HasUnits()) LoseBase(out);
}

// ---- catching up

void Averaging::OnCommitted(Time now, const PeerId& peer, const Committed& theirs, Actions& out) {
  if (!KeepsBase() || theirs.root.none()) return;
  if (HasUnits()) LearnCells(now, theirs, out);
  catch_up_.OnHolder(peer, theirs);
  GoCatchUp(now, out);
}

// What others have committed and this peer, which has the base before, has not.
const Committed* Averaging::Missed() const {
  if (!OneBase()) {
    if (!HoldsBase() || committed_.averaging.is_zero()) return nullptr;
    return catch_up_.Beyond(committed_.averaging, seating_, down_);
  }
  // Bases of earlier views are of no use for units and changes: a view's first average is a plain
  // one. Steps of gradients go on over views.
  const Committed* ahead = catch_up_.Ahead(OwnBase(), seating_, down_);
  return ahead != nullptr && (Gathers() || OfThisView(ahead->averaging)) ? ahead : nullptr;
}

// True while it is under way.
bool Averaging::GoCatchUp(Time now, Actions& out) {
  if (catch_up_.busy()) return true;
  // It is about to give its cell back: a fetch would outlast the seat.
  if (!Ready() || !idle() || hashing_ || left_behind_.is(now)) return false;
  const Committed* missed = Missed();
  if (missed == nullptr) return false;
  log_.Info("catching up",
            {{"from", committed_.averaging.value()}, {"to", missed->averaging.value()}});
  rounds_.OnOverwritten(now, Region::kInboxB, out);
  if (committed_region_ == Region::kInboxB) {  // of a strategy before that kept no base
    overwritten_ = true;
    committed_.root = Digest();
  }
  // Of gradients the trainer takes all of the state: its own step was not made.
  out.push_back(catch_up_.Fetch(*missed, Region::kInboxB, Gathers()));
  return true;
}

void Averaging::OnFetch(Time now, Region region, Actions& out) {
  rounds_.OnOverwritten(now, region, out);
  catch_up_.Stop();  // that fetch takes its place
  if (region != committed_region_) return;
  committed_.root = Digest();
  overwritten_ = true;
  hashing_ = false;
}

void Averaging::OnFetched(Time now, const StateFetched& fetched, Actions& out) {
  if (!catch_up_.busy()) return;
  if (Gathers()) return OnFetchedStep(now, fetched, out);
  if (fetched.ok) committed_.root = Digest();  // kVelocity is of another averaging than kInboxA
  // The later base may be another one of the same averaging.
  const AveragingId had = HoldsBase() ? committed_.averaging : AveragingId();
  if (catch_up_.OnFetched(fetched, OneBase() ? catch_up_.averaging() - 1 : had))
    return AskForOthers(out);
  if (const auto waits = std::exchange(waits_, std::nullopt);
      waits && Ready() && idle() && *waits >= next_)
    return TakePart(now, *waits, out);
  CheckDue(now, out);
}

// The trainer moves by as much as the base has moved since the averaging that it has.
void Averaging::MoveToBase(Time now, const Published& published, Actions& out) {
  const auto state = catch_up_.OnSnapshot();
  if (!state || !trainer_) {
    out.push_back(ReleaseOutbox{published.averaging});
    if (stage_ == Stage::kPublishing) RequestSnapshot(out);
    return AskForOthers(out);
  }
  // Nothing to be moved from: the trainer takes the base as it is.
  if (!HoldsBase() || committed_.averaging.is_zero())
    out.push_back(RunKernel{.kernel = MixKernel::kCopy,
                            .range = {0, trainer_->elements},
                            .regions = {Region::kInboxA, Region::kOutbox},
                            .scalars = {}});
  out.push_back(RunKernel{.kernel = MixKernel::kMoveBase,
                          .range = {0, trainer_->elements},
                          .regions = {Region::kInboxB, Region::kOutbox, Region::kInboxA},
                          .scalars = {}});
  committed_ = *state;
  committed_region_ = Region::kInboxA;
  overwritten_ = false;
  without_base_ = 0;
  committed_.root = Digest();  // as the host hashes it
  hashing_ = true;
  Learn(committed_);
  if (OneBase() && job_.averaging == committed_.averaging) job_ = committed_;
  next_ = std::max(next_, state->averaging + 1);
  rounds_.SetMin(next_);
  out.push_back(MoveTrainer{.averaging = state->averaging,
                            .region = Region::kInboxB,
                            .job_samples = state->job_samples,
                            .parts = PartsOf()});
  metrics_.outer_catch_ups->Add();
  if (HasUnits()) DealAnew(now, out);
  log_.Info("caught up", {{"averaging", state->averaging.value()}});
}

}  // namespace crowdsurf::worker
