#include "worker/core/averaging/averaging.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/strategy/strategy_factory.h"

namespace crowdsurf::worker {

Averaging::Averaging(const PeerConfig& config, PeerMetrics& metrics, Logger log, Rng rng)
    : config_(config),
      metrics_(metrics),
      log_(log.For("averaging")),
      rng_(rng),
      rounds_(config, metrics, log),
      counter_(MakeStrategy(StrategyKind::kMoshpit, rng_.Fork("counter"))),
      mixing_(config, metrics, log, rng_.Fork("mixing")),
      leases_(config.id) {}

// ---- membership

void Averaging::OnView(Time now, const Seating& seating, AveragingId next, ParentEnd parent,
                       Actions& out) {
  CHECK(stage_ != Stage::kRounds || parent == ParentEnd::kBrokeUp);
  const View& view = seating.view();
  rounds_.OnView(now, view, seating.hash(), parent, out);
  // A round that broke up has ended there: whether the own samples are counted is settled now.
  for (const GroupRounds::Ended& ended : rounds_.TakeEnded())
    if (ended.averaging == number_ && ended.round == 0) SettleSamples(ended, out);
  mixing_.OnView(now, view, seating.hash(), out);
  if (stage_ == Stage::kRounds) {
    if (snapshotted_) out.push_back(ReleaseOutbox{number_});
    ++abandoned_;
    metrics_.averagings_abandoned->Add();
  }
  if (!strategy_ || kind_ != view.config.strategy) {
    kind_ = view.config.strategy;
    strategy_ = config_.strategies(kind_, rng_.Fork("strategy"));
    CHECK(strategy_ != nullptr);  // admission refuses what is not built
    SetUnits();
  }
  TellWhole(out);
  committed_.cells = {};  // they are of a view
  const bool child = seated_ && view.parent == seating_.hash();
  StrategyActions ignored;  // an averaging that broke up was released above
  strategy_->OnView(now, view, config_.id, ignored);
  counter_->OnView(now, view, config_.id, ignored);
  seating_ = seating;
  turns_ = Turns(view);
  // The first interval of a newcomer begins with its seat.
  if (!seated_) mark_ = {.step = progress_.step, .samples = progress_.samples, .time = now};
  if (start_.IsOld(job_.averaging)) leases_.Discard();
  seated_ = true;
  if (child && HasUnits() && OfThisView(committed_.averaging)) DisownBase();
  jump_ = AveragingId();
  waits_.reset();
  without_base_ = 0;
  given_up_ = AveragingId();
  catch_up_.ForgetHolders();
  if (!KeepsBase()) catch_up_.Drop();
  due_.clear();
  announced_ = false;
  hold_.reset();
  SettleRestoredLedger();
  if (leases_.active()) AskForLedgers(out);
  if (movable() && number_ == next && !view.target_met) {  // the snapshot serves the new view
    if (stage_ == Stage::kPublishing) return;
    if (snapshotted_) return OpenTrip(now, out);
    stage_ = Stage::kPublishing;  // it was to count only; here it is the view's full average
    return RequestSnapshot(out);
  }
  if (stage_ == Stage::kHolding && snapshotted_) out.push_back(ReleaseOutbox{number_});
  stage_ = Stage::kIdle;
  // What others said while an averaging was open was kept back (Learn).
  Learn(std::exchange(ahead_, {}));
  next_ = std::max(next, begun_ + 1);  // numbers never go back, not even into another lineage
  rounds_.SetMin(next_);
  AskForFirst(now, out);
  AskToBeWoken(out);
  CheckDue(now, out);
  Resume(now, out);
}

void Averaging::OnSeating(Time now, const Seating& seating, Actions& out) {
  seating_ = seating;
  if (stage_ == Stage::kRounds) {
    rounds_.Replan(now, seating_.AsOf(number_), down_, out);
    CollectEnded(now, out);
  }
  if (announced_ && idle())  // newcomers must hear of it too
    Tell(message::DueFor{seating_.hash(), next_, Announced(), seating_.MinorHash()}, out);
  if (Gathers() && Ready()) TellOfShare(out);
  MaybeBegin(now, out);
}

void Averaging::OnUnseated(Time now, Actions& out) {
  seated_ = false;  // first: nothing may begin again
  left_behind_.Reset();
  catch_up_.Drop();
  DropFirst();
  ledger_sync_.Stop();
  LeaveNow(now, out);
  mixing_.Stop(out);
  announced_ = false;
  due_.clear();
}

void Averaging::OnRenewed(Time now, const PeerId& peer, Actions& out) {
  rounds_.OnRenewed(now, peer, out);
  CollectEnded(now, out);
}

void Averaging::OnPeerDown(Time now, const PeerId& peer, SuspicionCause cause, Actions& out) {
  rounds_.OnPeerDown(now, peer, cause, out);
  CollectEnded(now, out);
  if (cause == SuspicionCause::kReset) mixing_.OnPeerDown(now, peer, out);
  if (ledger_sync_.OnPeerDown(peer)) Resume(now, out);
  if (Gathers()) MaybeBegin(now, out);  // its share is not waited for any more
  AskForOthers(out);
}

void Averaging::Drain(Time now, Actions& out) {
  draining_ = true;
  mixing_.Drain();
  if (movable()) FinishAbandon(now, number_, out);
}

void Averaging::LeaveNow(Time now, Actions& out) {
  if (movable()) return FinishAbandon(now, number_, out);
  rounds_.LeaveOpen(now, out);
  CollectEnded(now, out);
}

void Averaging::Depart(Time now, Actions& out) {
  if (movable()) return FinishAbandon(now, number_, out);
  rounds_.Depart(now, out);
  CollectEnded(now, out);
}

// ---- views being made

AveragingId Averaging::bytes_begun() const {
  if (stage_ != Stage::kRounds) return first_of_new_view() - 1;
  // A first round that gave and took nothing counts as not begun: HoldFrom can undo it.
  const bool untouched = rounds_.pristine() && last_root_.none();
  return untouched ? number_ - 1 : number_;
}

AveragingId Averaging::first_unheard_of() const {
  AveragingId first = std::max(next(), begun_ + 1);
  while (due_.contains(first) && !due_.at(first).empty()) ++first;
  return first;
}

bool Averaging::MayMove(AveragingId barrier) const {
  return stage_ != Stage::kRounds && first_of_new_view() >= barrier;
}

bool Averaging::Held(Time now, AveragingId averaging) const {
  if (ledger_sync_.waits(now)) return true;
  return hold_ && averaging >= hold_->from && now < hold_->until;
}

void Averaging::HoldFrom(Time now, AveragingId barrier, Duration patience, Actions& out) {
  hold_ = Hold{.from = barrier, .until = now + patience};
  if (stage_ == Stage::kRounds && number_ >= barrier && bytes_begun() < number_) {
    rounds_.Suspend(now, out);
    stage_ = Stage::kHolding;
  }
  Resume(now, out);
}

void Averaging::Yield(Time now, AveragingId barrier, Actions& out) {
  if (HasChanges() && stage_ == Stage::kRounds && number_ >= barrier) Depart(now, out);
}

// Goes on with what is not held back (any more).
void Averaging::Resume(Time now, Actions& out) {
  if (stage_ == Stage::kHolding && !Held(now, number_)) OpenTrip(now, out);
  if (held_ >= next() && !Held(now, held_) && Ready()) BeginNow(now, held_, out);
}

// A peer that completes an averaging adds its final weight to its own sum; what others say of it is
// for those who do not complete it.
void Averaging::Learn(const Committed& theirs) {
  if (stage_ != Stage::kIdle && theirs.averaging >= number_) {
    if (theirs.averaging > ahead_.averaging) ahead_ = theirs;
    return;
  }
  if (theirs.averaging <= job_.averaging) return;
  job_ = theirs;
  metrics_.job_samples->Set(job_.job_samples);
}

void Averaging::OnLineage(const Committed& theirs) {
  job_ = theirs;
  has_rest_ = false;
  ahead_ = Committed();
  leases_.OnLineage();
  if (!Gathers()) ForgetHeld();
  metrics_.job_samples->Set(job_.job_samples);
}

// What is fetched to be adopted, or restored, lies in kInboxA.
void Averaging::OnHolds(const Committed& committed) {
  committed_ = committed;
  committed_region_ = Region::kInboxA;
  hashing_ = overwritten_ = false;
  Learn(committed);
  next_ = std::max(next_, committed.averaging + 1);
}

void Averaging::OnAdopted(const Committed& committed) {
  OnHolds(committed);
  has_rest_ = false;  // of a change that is gone
  leases_.OnAdopted();
  counted_ = std::max(counted_, progress_.samples);
  turn_weight_.OnTrainer(counted_);
  returned_ = answered_ = settled_ = 0;
  doubt_.reset();
}

// ---- snapshots

// One request at a time: one that was overtaken is waited for, released, and asked again.
void Averaging::RequestSnapshot(Actions& out) {
  if (asked_) return;
  asked_ = number_;
  asker_ = Asker::kAveraging;
  out.push_back(RequestPublish{number_});
}

// Mixing gets its snapshot when no other is asked for or in use, and so does who has missed an
// averaging.
void Averaging::AskForOthers(Actions& out) {
  if (asked_ || !trainer_) return;
  if (catch_up_.wants_snapshot()) {
    asked_ = catch_up_.averaging();
    asker_ = Asker::kCatchUp;
    catch_up_.OnAsked();
    out.push_back(RequestPublish{*asked_});
    return;
  }
  const auto wanted = mixing_.wanted();
  if (!wanted) return;
  asked_ = *wanted;
  asker_ = Asker::kMixing;
  mixing_.OnAsked();
  out.push_back(RequestPublish{*wanted});
}

// ---- trainer

void Averaging::OnTrainer(Time now, const TrainerRegistered& trainer) {
  trainer_ = trainer;
  rounds_.SetVector({.schema = trainer.schema, .elements = trainer.elements});
  mixing_.SetVector(trainer.elements, trainer.tensors);
  told_units_ = AveragingId();
  committed_.cells = {};
  if (strategy_) SetUnits();
  committed_region_ = Region::kInboxA;  // what is fetched or restored lies there
  committed_.root = Digest();           // and what the trainer before had does not
  overwritten_ = true;
  DropFirst();
  hashing_ = has_rest_ = false;
  if (Gathers()) HoldStep(trainer);
  counted_ = snapshot_ = trainer.counted;
  turn_weight_.OnTrainer(counted_);
  returned_ = answered_ = settled_ = 0;
  doubt_.reset();
  progress_ = {};
  leases_.OnTrainer(trainer.fresh ? TrainerPast::kNone : TrainerPast::kUnknown);
  took_part_ = false;
  start_ = {};
  mark_ = {.step = 0, .samples = 0, .time = now};
}

void Averaging::OnTrainerGone(Time now, Actions& out) {
  Depart(now, out);
  mixing_.Stop(out);
  trainer_.reset();
  leases_.OnTrainer(TrainerPast::kNone);
  asked_.reset();
  filling_.reset();
  catch_up_.Stop();
  DropFirst();
  hashing_ = false;
  announced_ = false;
}

void Averaging::OnProgress(Time now, const Progress& progress, Actions& out) {
  progress_ = progress;
  leases_.OnProgress(progress.leases);
  mixing_.OnProgress(now, progress, out);
  AskForOthers(out);
  CheckDue(now, out);
}

void Averaging::OnPairWord(Time now, const PeerId& from, const PairWord& word, Actions& out) {
  mixing_.OnWord(now, from, word, out);
  AskForOthers(out);
}

void Averaging::OnEdgeWord(Time now, const PeerId& from, const EdgeWord& word, Actions& out) {
  mixing_.OnEdgeWord(now, from, word, out);
  AskForOthers(out);
}

void Averaging::OnMixChunk(Time now, const MixArrived& chunk, Actions& out) {
  mixing_.OnChunk(now, chunk, out);
  AskForOthers(out);
}

void Averaging::OnMixSent(Time now, const MixSent& sent, Actions& out) {
  mixing_.OnSent(now, sent, out);
  AskForOthers(out);
}

void Averaging::OnPublished(Time now, const Published& published, Actions& out) {
  asked_.reset();
  const Asker asker = std::exchange(asker_, Asker::kAveraging);
  if (asker == Asker::kFirst) return OnFirstSnapshot(now, published, out);
  if (asker == Asker::kCatchUp) return MoveToBase(now, published, out);
  if (asker == Asker::kMixing && MixSnapshot(now, published, out)) return AskForOthers(out);
  if (filling_ == published.averaging) return FinishFilling(now, out);
  // It was overtaken: another averaging is the present one, or this one was given up.
  if (!AwaitsSnapshot(published.averaging)) {
    out.push_back(ReleaseOutbox{published.averaging});
    if (stage_ == Stage::kPublishing) RequestSnapshot(out);
    return AskForOthers(out);
  }
  filled_ = GroupRounds::kWhole;
  TakeSnapshot(now, published, out);
}

bool Averaging::AwaitsSnapshot(AveragingId averaging) const {
  return stage_ == Stage::kPublishing && averaging == number_ && trainer_ && seated_;
}

void Averaging::TakeSnapshot(Time now, const Published& published, Actions& out) {
  snapshotted_ = true;
  staked_ = {};
  rounds_.OnSnapshot(now, out);
  snapshot_ = published.samples;
  snapshot_units_ = published.units;
  gathered_ = published.gathered;
  leases_.OnSnapshot(published.leases);
  // The snapshot may be newer than the last report of progress.
  progress_.step = std::max(progress_.step, published.step);
  progress_.samples = std::max(progress_.samples, published.samples);
  mark_ = {.step = published.step, .samples = published.samples, .time = now};
  OpenTrip(now, out);
}

// Others may have heard the stake of a round that was suspended before it sent values, and go by
// that: opened anew under the same list it has the same stake.
void Averaging::FixStake() {
  if (staked_ == std::pair(number_, seating_.hash())) return;
  staked_ = {number_, seating_.hash()};
  returned_ += std::exchange(answered_, 0);
  // Without weight the mean takes the place of what is to be discarded.
  double samples = leases_.discards() ? 0 : snapshot_ - counted_ + returned_;
  // What a trainer drops with a step that it missed is in no gradient.
  if (Gathers()) samples = gathered_;
  const bool equal = seating_.view().config.weighting == Weighting::kEqual;
  stake_ = {.weight = equal && !leases_.discards() ? 1 : samples,
            .samples = samples,
            .before = {},
            .base = BaseRoot(),
            .age = {},
            .claims = {}};
  if (WeighsByTurns() && !Counting(number_)) stake_.weight = WeightOfTurn();
  // The count that comes next has them.
  if (IsOneRound(number_))
    stake_.samples = 0;
  else
    stake_.claims = leases_.Claims(number_);
  in_mean_ = false;
  // Others may have completed this averaging already: then their count is not of before it.
  if (job_.averaging < number_)
    stake_.before = {.averaging = job_.averaging, .samples = job_.job_samples};
  // A member that is behind shows it by the base that it has, not by what it has heard.
  if (Gathers() ? !OwnBase().averaging.is_zero() : OneBase() && IsDealt())
    stake_.before = {.averaging = committed_.averaging, .samples = committed_.job_samples};
  if (Counting(number_)) stake_.age = mixing_.age();
}

void Averaging::OnPublishRefused(Time now, const PublishRefused& refused, Actions& out) {
  asked_.reset();
  const Asker asker = std::exchange(asker_, Asker::kAveraging);
  if (asker == Asker::kFirst) FailFirst(now, out);
  if (asker == Asker::kCatchUp) {
    catch_up_.OnRefused();
    if (stage_ == Stage::kPublishing) RequestSnapshot(out);
    return;
  }
  if (asker == Asker::kMixing) {
    mixing_.OnRefused(now, out);
    if (stage_ == Stage::kPublishing) RequestSnapshot(out);
    return AskForOthers(out);
  }
  if (filling_ == refused.averaging) return LoseFilling(now, out);
  if (stage_ != Stage::kPublishing) return;
  if (refused.averaging != number_) return RequestSnapshot(out);
  log_.Warning("the trainer gave no snapshot", {{"averaging", refused.averaging.value()}});
  // A whole interval passes until the next try.
  mark_ = {.step = progress_.step, .samples = progress_.samples, .time = now};
  FinishAbandon(now, number_, out);
}

}  // namespace crowdsurf::worker
