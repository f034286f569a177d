// The rounds of one averaging: what the strategy asks for, and what comes of it (averaging.h).
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/core/averaging/averaging.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {

// The snapshot of averaging number_ is in the outbox: the rounds begin, unless another view is to
// have them.
void Averaging::OpenTrip(Time now, Actions& out) {
  last_root_ = Digest();
  last_hashes_ = nullptr;
  ledger_sync_.OnNeeded(now);
  if (Held(now, number_)) {
    stage_ = Stage::kHolding;
    return;
  }
  stage_ = Stage::kRounds;
  // The others have gone on while the trainer took its snapshot.
  if (HasChanges() && LacksBase()) return FinishAbandon(now, number_, out);
  // An averaging of a view without a base is one of whole values, and makes the base.
  changes_ = HasChanges() && !Counting(number_) && IsDealt();
  FixStake();
  StrategyActions actions;
  Strategy& strategy = Counting(number_) ? *counter_ : *strategy_;
  strategy.OnEvent(now, PublishedEvent{number_, stake_.weight, snapshot_units_}, actions);
  Run(now, actions, out);
}

void Averaging::Run(Time now, StrategyActions& actions, Actions& out) {
  // A round of one member, or one this peer has no seat in, ends at once and gives more to do.
  while (!actions.empty()) {
    StrategyActions more;
    for (const StrategyAction& action : actions) {
      if (const auto* open = std::get_if<OpenRound>(&action)) OpenOne(now, *open, more, out);
      if (const auto* units = std::get_if<TellUnits>(&action)) {
        told_units_ = units->sets.empty() ? AveragingId() : units->by;
        out.push_back(TellTrainerUnits{units->by, units->sets});
      }
      if (const auto* result = std::get_if<DeliverResult>(&action))
        FinishDelivery(now, *result, out);
      if (const auto* lost = std::get_if<AbandonAveraging>(&action))
        FinishAbandon(now, lost->averaging, out);
    }
    actions = std::move(more);
  }
}

void Averaging::OpenOne(Time now, const OpenRound& open, StrategyActions& more, Actions& out) {
  const Seating seating = seating_.AsOf(open.averaging);
  const auto cell = seating.CellOf(config_.id);
  const auto before = rounds_.CellIn(open.averaging);
  // The seat was lost in the middle of it; or this peer was moved to another cell, where it has
  // nothing to say: what it holds is the mean of those it sat with (GroupRounds::Replan).
  if (!cell || (before && before != cell)) {
    Strategy& strategy = Counting(open.averaging) ? *counter_ : *strategy_;
    strategy.OnEvent(now, RoundDecided{open.averaging, open.axis, false, 0}, more);
    return;
  }
  // Else it is a single round, on whatever axis.
  const bool all = !IsOneRound(open.averaging);
  // A snapshot that gives nothing (IST) brings no samples: what they taught is lost with it.
  const bool gives = open.subnet == nullptr || open.from == Region::kOutbox;
  ClaimSet claims = stake_.claims;
  if (!gives) claims.claims.clear();
  const GroupRounds::Opening opening{
      .averaging = open.averaging,
      .round = all ? static_cast<uint32_t>(open.axis) : 0,
      .axis = open.axis,
      .stand_ins = all,
      .from = open.from,
      .to = open.to,
      .stake = {.weight = open.weight,
                .samples = gives ? stake_.samples : 0,
                .before = stake_.before,
                .holds = last_root_,
                .base = stake_.base,
                .age = stake_.age,
                .claims = std::move(claims)},
      .holds = last_root_,
      .counting = Counting(open.averaging),
      .mask = open.mask,
      .subnet = open.subnet,
      .one_base = Gathers() || changes_,
      .leaves_when_behind = OneBase(),
      .changes = changes_,
      .with_rest = has_rest_,
      .filled = open.from == Region::kOutbox ? filled_ : GroupRounds::kWhole};
  rounds_.SetMin(number_);
  if (open.to == committed_region_ && !opening.counting) {
    // A newcomer that fetches it now finds no donor. It stands from its delivery to here:
    // with two axes or more, to the second round of the next averaging.
    overwritten_ = true;
    committed_.root = Digest();
  }
  rounds_.OpenRound(now, opening, seating, down_, out);
  CollectEnded(now, out);
}

void Averaging::CollectEnded(Time now, Actions& out) {
  for (const GroupRounds::Ended& ended : rounds_.TakeEnded()) {
    if (stage_ != Stage::kRounds || ended.averaging != number_) continue;
    const bool applied = Applied(ended.over.outcome);
    if (ended.round == 0) {
      in_mean_ = ended.counted;
      lone_ = applied && IsLone(ended);
      SettleSamples(ended, out);
    } else if (applied && in_mean_ && !ended.counted && KeepsChange()) {
      in_mean_ = false;  // what a round took in a later one has lost
      returned_ += settled_;
    }
    if (applied) seated_then_ = ended.seated;
    last_root_ = ended.over.root;
    last_hashes_ = ended.hashes;
    last_to_ = ended.to;
    stake_ = ended.over.stake;
    contributors_ = ended.over.contributors;
    StrategyActions actions;
    Strategy& strategy = Counting(ended.averaging) ? *counter_ : *strategy_;
    strategy.OnEvent(
        now,
        RoundDecided{ended.averaging, ended.axis, applied, ended.over.stake.weight, contributors_},
        actions);
    Run(now, actions, out);
  }
}

// Members with different lists of seats may decide two values in one averaging, each for itself. So
// may members of a view and of its successor. Leases and changes need a single one. Of those with
// more than half of the members in it there is one. Of those with a quorum of the view's witnesses
// there is one even over a change of the view: two quorums meet, and a worker gives to one
// averaging of a number.
bool Averaging::IsLone(const GroupRounds::Ended& ended) const {
  const View& view = seating_.view();
  if (view.grid.axes() > 1) return false;
  if (HasChanges() && !IsQuorum(view.witnesses, ended.contributors)) return true;
  return !ended.over.stake.claims.none() &&
         2 * ended.over.contributors.size() <= ended.seated.size();
}

// After round 0 it is known whether the own samples are in the job's count. A member that adopts a
// mean without its own contribution gives its weight up with the change that it loses; one that
// keeps its values keeps its weight for the next averaging, unless it may have been counted without
// it.
void Averaging::SettleSamples(const GroupRounds::Ended& ended, Actions& out) {
  if (Gathers()) return;  // a gradient stays with the trainer until a step is made
  if (IsOneRound(ended.averaging)) return;  // the count that comes next settles them
  const double samples = leases_.discards() ? 0 : snapshot_ - counted_ + returned_;
  if (!Applied(ended.over.outcome) && !ended.flowed) return;
  // A claim needs the weight of its samples, so it keeps that also where they may be counted.
  const bool kept = StepsFromElsewhere(ended.over.stake) || KeepsChange();
  if (lone_ || (!ended.counted && kept)) return;  // its change is not lost
  counted_ = snapshot_;
  returned_ = 0;
  settled_ = samples;
  if (Applied(ended.over.outcome)) return;
  doubt_ = Doubt{.instance = ended.instance, .samples = samples};
  const Bytes ask = EncodeMessage(message::CountedAsk{ended.instance});
  for (const PeerId& peer : ended.group) out.push_back(Send{peer, ask});
}

void Averaging::OnCountedAsk(const PeerId& from, const message::CountedAsk& ask, Actions& out) {
  if (const auto counted = rounds_.Counted(ask.instance, from))
    out.push_back(Send{from, EncodeMessage(message::CountedAnswer{ask.instance, *counted})});
}

void Averaging::OnCountedAnswer(const message::CountedAnswer& answer) {
  if (!doubt_ || doubt_->instance != answer.instance) return;
  if (!answer.counted) answered_ += doubt_->samples;
  doubt_.reset();
}

void Averaging::FinishDelivery(Time now, const DeliverResult& result, Actions& out) {
  CHECK(stage_ == Stage::kRounds);
  if (lone_) return FinishAbandon(now, result.averaging, out);
  if (Counting(result.averaging)) return FinishCount(now, result.averaging, out);
  if (IsOneRound(result.averaging)) return FinishRound(now, result, out);
  CommitLeases(result.averaging, out);
  // The samples behind its change would be trained again, though it lives.
  if (!in_mean_ && KeepsChange()) return FinishAbandon(now, result.averaging, out);
  if (KeepsBase() && !FinishStep(now, result.region, out))
    return FinishAbandon(now, result.averaging, out);
  // By what its contributors knew, not by what this peer did: equal at all who complete it.
  committed_ = {.averaging = result.averaging,
                .root = Digest(),
                .job_samples = stake_.before.samples + stake_.samples};
  if (HasUnits()) committed_.cells = contributors_;
  const auto latest = [](const Committed& c) { return JobCount{c.averaging, c.job_samples}; };
  if (latest(job_) < latest(committed_)) job_ = committed_;
  committed_region_ = KeepsBase() ? Region::kInboxA : result.region;
  overwritten_ = false;
  turn_weight_.OnWhole(snapshot_);
  hashing_ = KeepsBase();
  catch_up_.OnDelivered();
  left_behind_.Reset();
  // No outer step, nor a trainer's, has made other values of what the last round decided.
  const bool as_decided =
      PartsOf() == StateParts::kAverage && !KeepsBase() && !Gathers() && last_to_ == result.region;
  out.push_back(Deliver{.averaging = result.averaging,
                        .region = Gathers() ? Region::kInboxB : committed_region_,
                        .samples = stake_.samples,
                        .job_samples = committed_.job_samples,
                        .root = last_root_,
                        .parts = PartsOf(),
                        .ledger = LedgerOf(result.averaging),
                        .hashes = as_decided ? last_hashes_ : nullptr});
  ++deliveries_;
  took_part_ = true;
  start_ = {};
  metrics_.averagings_delivered->Add();
  metrics_.job_samples->Set(job_.job_samples);
  metrics_.averaging->Set(static_cast<double>(result.averaging.value()));
  log_.Info("averaging delivered", {{"averaging", result.averaging.value()},
                                    {"samples", stake_.samples},
                                    {"job_samples", committed_.job_samples}});
  GoOn(now, result.averaging, out);
}

// Samples were counted; the parameters are mixing's.
void Averaging::FinishCount(Time now, AveragingId averaging, Actions& out) {
  if (job_.averaging <= averaging)
    job_ = {.averaging = averaging,
            .root = Digest(),
            .job_samples = stake_.before.samples + stake_.samples};
  CommitLeases(averaging, out);
  // It was made for the average of a view before this one.
  if (snapshotted_) out.push_back(ReleaseOutbox{averaging});
  if (turns_.taken()) turn_weight_.OnApart();
  took_part_ = true;
  metrics_.job_samples->Set(job_.job_samples);
  metrics_.averaging->Set(static_cast<double>(averaging.value()));
  // Others may be ahead: then the number, the count and the leases are theirs, and fit each other.
  out.push_back(JobCounted{.averaging = job_.averaging,
                           .job_samples = job_.job_samples,
                           .ledger = LedgerOf(job_.averaging)});
  mixing_.OnCounted(now, averaging, stake_.age, out);
  GoOn(now, averaging, out);
}

// The view's full average is over, or was missed: from here on neighbours mix.
void Averaging::StartMixing(Time now, Actions& out) {
  if (!mixing_.on_graph() || mixing_.started() || !Ready()) return;
  mixing_.Start(now, MixingInbox(), out);
  AskForOthers(out);
}

// The one that does not hold the committed average.
Region Averaging::MixingInbox() const {
  return committed_region_ == Region::kInboxA ? Region::kInboxB : Region::kInboxA;
}

bool Averaging::MixSnapshot(Time now, const Published& published, Actions& out) {
  // Results are written from here on. What an earlier round of the view's average has left there is
  // served, and spoken from, up to now.
  if (mixing_.started()) rounds_.OnOverwritten(now, MixingInbox(), out);
  return mixing_.OnSnapshot(now, published, out);
}

// The averaging is over here: the next one.
void Averaging::GoOn(Time now, AveragingId averaging, Actions& out) {
  stage_ = Stage::kIdle;
  snapshotted_ = false;
  // No averaging fills that place again in this view.
  if (turns_.taken() && overwritten_) committed_ = Committed();
  Learn(std::exchange(ahead_, {}));
  next_ = std::max(averaging + 1, jump_);
  rounds_.SetMin(next_);
  rounds_.AnswerPassed(now, out);
  StartMixing(now, out);
  AskToBeWoken(out);
  if (begun_ >= next_ && Ready()) return TakePart(now, begun_, out);
  CheckDue(now, out);
}

AveragingId Averaging::near_enough() const {
  // The last full one is all there is to fetch: averagings since then have counted only, or left
  // each group with values of its own.
  return values_differ() ? committed_.averaging : job_.averaging;
}

void Averaging::FinishAbandon(Time now, AveragingId averaging, Actions& out) {
  if (stage_ == Stage::kIdle) return;
  // A snapshot that is still being asked for is released when it comes.
  if (stage_ != Stage::kPublishing && snapshotted_) out.push_back(ReleaseOutbox{averaging});
  // Its rounds wrote over what could be fetched.
  if (mixing_.on_graph() && snapshotted_) committed_ = Committed();
  ++abandoned_;
  metrics_.averagings_abandoned->Add();
  log_.Warning("averaging abandoned", {{"averaging", averaging.value()}});
  if (leases_.active() && !ledger_sync_.waits(now)) AskForLedgers(out);
  GoOn(now, averaging, out);
}

void Averaging::OnFrame(Time now, const PeerId& from, const message::RoundFrame& frame,
                        Actions& out) {
  // A frame of an averaging that did not begin here is as good as Begin.
  if (frame.averaging > begun_ && frame.view == seating_.hash()) OnBegin(now, frame.averaging, out);
  rounds_.SetMin(idle() ? next_ : number_);
  rounds_.OnFrame(now, from, frame, out);
  CollectEnded(now, out);
}

void Averaging::OnListInUse(Time now, const message::ListInUse& list, Actions& out) {
  rounds_.OnListInUse(now, list, down_, out);
  CollectEnded(now, out);
  if (!rounds_.TakeUnlisted() || stage_ != Stage::kRounds || bytes_begun() >= number_) return;
  // Its seat came too late for this averaging: it takes part from the next one on.
  rounds_.Suspend(now, out);
  FinishAbandon(now, number_, out);
}

bool Averaging::OnChunk(Time now, const ChunkArrived& chunk, Actions& out) {
  const bool keep = rounds_.OnChunk(now, chunk, out);
  CollectEnded(now, out);
  return keep;
}

void Averaging::OnFolded(Time now, const FoldedChunk& chunk, Actions& out) {
  rounds_.OnFolded(now, chunk, out);
  CollectEnded(now, out);
}

}  // namespace crowdsurf::worker
