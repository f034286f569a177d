#include "worker/core/averaging.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kDueAhead = 2;  // averagings whose due lists are kept
// Where a strategy on a graph moves the parameters, averagings count the job's samples, this often:
// halved, twice the small frames; doubled, a job overshoots its target by as much.
constexpr Duration kCountEvery = Seconds(1);

// How long before the end of a job's time its last averaging is due. Steps and rounds that take
// longer together miss the end, and what they would have brought is left out, as it was without.
constexpr Duration kLastAveraging = Seconds(1);

// A snapshot is taken at the step boundary after it was asked for. A trainer that waits for results
// is asked within the last step of its interval, so that every snapshot is exactly `interval` steps
// from the last result: who takes more steps than others between two averages pulls all of them
// towards its own data.
double StepsAhead(const AveragingConfig& averaging) {
  return averaging.overlap == Overlap::kBlocking ? 1 : 0;
}

}  // namespace

Averaging::Averaging(const PeerConfig& config, PeerMetrics& metrics, Logger log, Rng rng)
    : config_(config),
      metrics_(metrics),
      log_(log.For("averaging")),
      rng_(rng),
      rounds_(config, metrics, log),
      counter_(MakeStrategy(StrategyKind::kMoshpit, rng_.Fork("counter"))),
      mixing_(config, metrics, log, rng_.Fork("mixing")) {}

// ---- membership

void Averaging::OnView(Time now, const Seating& seating, uint64_t next, bool broke_up,
                       Actions& out) {
  CHECK(stage_ != Stage::kRounds || broke_up);
  const View& view = seating.view();
  rounds_.OnView(now, view, seating.hash(), broke_up, out);
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
    strategy_ = MakeStrategy(kind_, rng_.Fork("strategy"));
    CHECK(strategy_ != nullptr);  // admission refuses what is not built
  }
  StrategyActions ignored;  // an averaging that broke up was released above
  strategy_->OnView(now, view, config_.id, ignored);
  counter_->OnView(now, view, config_.id, ignored);
  seating_ = seating;
  if (!seated_) mark_ = {.step = progress_.step, .samples = progress_.samples, .time = now};
  seated_ = true;
  jump_ = 0;
  due_.clear();
  announced_ = false;
  hold_.reset();
  if (movable() && number_ == next && !view.target_met) {  // the snapshot serves the new view
    if (stage_ == Stage::kPublishing) return;
    if (snapshotted_) return OpenTrip(now, out);
    stage_ = Stage::kPublishing;  // it was to count only; here it is the view's full average
    return RequestSnapshot(out);
  }
  if (stage_ == Stage::kHolding && snapshotted_) out.push_back(ReleaseOutbox{number_});
  stage_ = Stage::kIdle;
  Learn(std::exchange(ahead_, {}));
  next_ = std::max(next, begun_ + 1);  // numbers never go back, not even into another line
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
    Tell(message::DueFor{seating_.hash(), next_, job_, seating_.MinorHash()}, out);
  MaybeBegin(now, out);
}

void Averaging::OnUnseated(Time now, Actions& out) {
  seated_ = false;  // first: nothing may begin again
  LeaveNow(now, out);
  mixing_.Stop(out);
  announced_ = false;
  due_.clear();
}

void Averaging::OnPeerDown(Time now, const PeerId& peer, SuspicionCause cause, Actions& out) {
  rounds_.OnPeerDown(now, peer, cause, out);
  CollectEnded(now, out);
  if (cause == SuspicionCause::kReset) mixing_.OnPeerDown(now, peer, out);
  AskForMixing(out);
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

// ---- views being made

uint64_t Averaging::bytes_begun() const {
  if (stage_ != Stage::kRounds) return first_of_new_view() - 1;
  const bool untouched = rounds_.pristine() && last_root_.none();
  return untouched ? number_ - 1 : number_;
}

uint64_t Averaging::first_unheard_of() const {
  uint64_t first = std::max(next(), begun_ + 1);
  while (due_.contains(first) && !due_.at(first).empty()) ++first;
  return first;
}

bool Averaging::MayMove(uint64_t barrier) const {
  return stage_ != Stage::kRounds && first_of_new_view() >= barrier;
}

bool Averaging::Held(Time now, uint64_t averaging) const {
  return hold_ && averaging >= hold_->from && now < hold_->until;
}

void Averaging::HoldFrom(Time now, uint64_t barrier, Duration patience, Actions& out) {
  hold_ = Hold{.from = barrier, .until = now + patience};
  if (stage_ == Stage::kRounds && number_ >= barrier && bytes_begun() < number_) {
    rounds_.Suspend(now, out);
    stage_ = Stage::kHolding;
  }
  Resume(now, out);
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

void Averaging::OnLine(const Committed& theirs) {
  job_ = theirs;
  committed_ = ahead_ = Committed();
  overwritten_ = false;
  metrics_.job_samples->Set(job_.job_samples);
}

void Averaging::OnHolds(const Committed& committed) {
  committed_ = committed;
  overwritten_ = false;
  Learn(committed);
  next_ = std::max(next_, committed.averaging + 1);
}

void Averaging::OnAdopted(const Committed& committed) {
  OnHolds(committed);
  counted_ = std::max(counted_, progress_.samples);
  returned_ = 0;
  doubt_.reset();
}

// ---- due and begin

std::vector<PeerId> Averaging::Neighbours() const {
  std::set<PeerId> peers;
  const auto cell = seating_.CellOf(config_.id);
  if (seating_.occupants().size() <= kTellEverybody || !cell) {
    for (const auto& [at, member] : seating_.occupants()) peers.insert(member.id);
  } else {
    for (size_t axis = 0; axis < seating_.view().grid.axes(); ++axis)
      for (const CellIndex at : GroupCells(seating_.view().grid, *cell, axis))
        if (const Member* member = seating_.At(at)) peers.insert(member->id);
  }
  peers.erase(config_.id);
  return {peers.begin(), peers.end()};
}

void Averaging::Tell(const Message& message, Actions& out) const {
  const Bytes body = EncodeMessage(message);
  for (const PeerId& peer : Neighbours()) out.push_back(Send{peer, body});
}

Time Averaging::LastDue() const { return end_ - kLastAveraging; }

bool Averaging::IntervalOver(Time now) const {
  const AveragingConfig& averaging = seating_.view().config;
  if (mixing_.on_graph()) return !Counting(next_) || now - mark_.time >= kCountEvery;
  if (now >= LastDue() && mark_.time < LastDue()) return true;
  switch (averaging.interval_unit) {
    case IntervalUnit::kSteps:
      return static_cast<double>(progress_.step) + StepsAhead(averaging) >=
             static_cast<double>(mark_.step) + averaging.interval;
    case IntervalUnit::kSamples:
      return progress_.samples - mark_.samples >= averaging.interval;
    case IntervalUnit::kSeconds:
      return now - mark_.time >= Seconds(averaging.interval);
  }
  return false;
}

void Averaging::AskToBeWoken(Actions& out) {
  if (!Ready() || mixing_.on_graph()) return;
  const AveragingConfig& averaging = seating_.view().config;
  WakeAt wake{.steps = 0, .samples = 0};
  if (averaging.interval_unit == IntervalUnit::kSteps)
    wake.steps = mark_.step +
                 static_cast<uint64_t>(std::max(averaging.interval - StepsAhead(averaging), 0.0));
  if (averaging.interval_unit == IntervalUnit::kSamples)
    wake.samples = mark_.samples + averaging.interval;
  if (wake.steps != 0 || wake.samples != 0) out.push_back(wake);
}

void Averaging::CheckDue(Time now, Actions& out) {
  if (!Ready() || !idle() || !IntervalOver(now)) return;
  const bool first = !announced_;
  if (!first && now - announced_at_ < config_.heartbeat) return;
  announced_ = true;
  announced_at_ = now;
  due_[next_].insert(config_.id);
  Tell(message::DueFor{seating_.hash(), next_, job_, seating_.MinorHash()}, out);
  MaybeBegin(now, out);
}

void Averaging::OnDue(Time now, const PeerId& from, uint64_t averaging, Actions& out) {
  if (!seated_ || averaging < next()) return;
  if (!idle() && averaging > next()) jump_ = std::max(jump_, averaging);
  if (idle() && averaging > next_) Advance(now, averaging, out);  // we missed one: follow
  if (averaging > next() + kDueAhead) return;
  due_[averaging].insert(from);
  MaybeBegin(now, out);
}

// Averagings below `next` are over elsewhere.
void Averaging::Advance(Time now, uint64_t next, Actions& out) {
  next_ = next;
  due_.erase(due_.begin(), due_.lower_bound(next));
  announced_ = false;
  CheckDue(now, out);
}

void Averaging::MaybeBegin(Time now, Actions& out) {
  if (!Ready() || !idle()) return;
  const Seating seating = seating_.AsOf(next_);
  size_t due = 0;
  size_t live = 0;
  const auto at = due_.find(next_);
  if (at == due_.end()) return;
  for (const auto& [cell, member] : seating.occupants()) {
    if (down_.contains(member.id)) continue;
    ++live;
    if (at->second.contains(member.id)) ++due;
  }
  if (due > 0 && 2 * due >= live) BeginNow(now, next_, out);
}

void Averaging::OnBegin(Time now, uint64_t averaging, Actions& out) {
  if (Ready() && averaging >= next()) BeginNow(now, averaging, out);
}

void Averaging::BeginNow(Time now, uint64_t averaging, Actions& out) {
  if (averaging <= begun_ || !seating_.AsOf(averaging).CellOf(config_.id)) return;
  if (Held(now, averaging)) {
    held_ = std::max(held_, averaging);
    return;
  }
  begun_ = averaging;
  Tell(message::Begin{seating_.hash(), averaging}, out);
  if (stage_ == Stage::kRounds || stage_ == Stage::kHolding) {
    // The others are past our averaging: whoever is not in our round yet does not come any more.
    rounds_.StopGathering(now, out);
    CollectEnded(now, out);
    return;  // FinishDelivery or FinishAbandon goes on with it
  }
  StartPublish(now, averaging, out);
}

void Averaging::StartPublish(Time now, uint64_t averaging, Actions& out) {
  stage_ = Stage::kPublishing;
  number_ = averaging;
  next_ = averaging;
  announced_ = false;
  due_.erase(due_.begin(), due_.upper_bound(averaging));
  snapshotted_ = false;
  if (!Counting(averaging)) return RequestSnapshot(out);
  snapshot_ = std::max(counted_, progress_.samples);
  mark_ = {.step = progress_.step, .samples = progress_.samples, .time = now};
  OpenTrip(now, out);
}

bool Averaging::Counting(uint64_t averaging) const {
  return mixing_.on_graph() && averaging != seating_.view().first_averaging;
}

// One request at a time: one that was overtaken is waited for, released, and asked again.
void Averaging::RequestSnapshot(Actions& out) {
  if (asked_) return;
  asked_ = number_;
  asked_by_mixing_ = false;
  out.push_back(RequestPublish{number_});
}

// Mixing gets its snapshot when no other is asked for or in use.
void Averaging::AskForMixing(Actions& out) {
  const auto wanted = mixing_.wanted();
  if (!wanted || asked_ || !trainer_) return;
  asked_ = *wanted;
  asked_by_mixing_ = true;
  mixing_.OnAsked();
  out.push_back(RequestPublish{*wanted});
}

// The view's full average is over, or was missed: from here on neighbours mix.
void Averaging::OpenMixing(Time now, Actions& out) {
  if (!mixing_.on_graph() || mixing_.open() || !Ready()) return;
  const bool first = committed_region_ == Region::kInboxA;
  mixing_.Open(now, first ? Region::kInboxB : Region::kInboxA, out);
  AskForMixing(out);
}

// ---- trainer

void Averaging::OnTrainer(Time now, const TrainerRegistered& trainer) {
  trainer_ = trainer;
  rounds_.SetVector({.schema = trainer.schema, .elements = trainer.elements});
  mixing_.SetVector(trainer.elements);
  committed_region_ = Region::kInboxA;  // what is fetched or restored lies there
  counted_ = snapshot_ = trainer.counted;
  returned_ = 0;
  doubt_.reset();
  progress_ = {};
  took_part_ = false;
  mark_ = {.step = 0, .samples = 0, .time = now};
}

void Averaging::OnTrainerGone(Time now, Actions& out) {
  LeaveNow(now, out);
  mixing_.Stop(out);
  trainer_.reset();
  asked_.reset();
  announced_ = false;
}

void Averaging::OnProgress(Time now, const Progress& progress, Actions& out) {
  progress_ = progress;
  mixing_.OnProgress(now, progress, out);
  AskForMixing(out);
  CheckDue(now, out);
}

void Averaging::OnPairWord(Time now, const PeerId& from, const PairWord& word, Actions& out) {
  mixing_.OnWord(now, from, word, out);
  AskForMixing(out);
}

void Averaging::OnMixChunk(Time now, const MixArrived& chunk, bool stored, Actions& out) {
  mixing_.OnChunk(now, chunk, stored, out);
  AskForMixing(out);
}

void Averaging::OnMixSent(Time now, const MixSent& sent, Actions& out) {
  mixing_.OnSent(now, sent, out);
  AskForMixing(out);
}

void Averaging::OnPublished(Time now, const Published& published, Actions& out) {
  asked_.reset();
  if (std::exchange(asked_by_mixing_, false) && mixing_.OnSnapshot(now, published, out))
    return AskForMixing(out);
  const bool wanted =
      stage_ == Stage::kPublishing && published.averaging == number_ && trainer_ && seated_;
  if (!wanted) {
    out.push_back(ReleaseOutbox{published.averaging});
    if (stage_ == Stage::kPublishing) RequestSnapshot(out);
    return AskForMixing(out);
  }
  snapshotted_ = true;
  rounds_.OnSnapshot(now, out);
  snapshot_ = published.samples;
  progress_.step = std::max(progress_.step, published.step);
  progress_.samples = std::max(progress_.samples, published.samples);
  mark_ = {.step = published.step, .samples = published.samples, .time = now};
  OpenTrip(now, out);
}

// The snapshot of averaging number_ is in the outbox: the rounds begin, unless another view is to
// have them.
void Averaging::OpenTrip(Time now, Actions& out) {
  last_root_ = Digest();
  if (Held(now, number_)) {
    stage_ = Stage::kHolding;
    return;
  }
  stage_ = Stage::kRounds;
  const double samples = snapshot_ - counted_ + returned_;
  const bool equal = seating_.view().config.weighting == Weighting::kEqual;
  stake_ = {.weight = equal ? 1 : samples, .samples = samples, .before = {}};
  // Others may have completed this averaging already: then their count is not of before it.
  if (job_.averaging < number_)
    stake_.before = {.averaging = job_.averaging, .samples = job_.job_samples};
  StrategyActions actions;
  Strategy& strategy = Counting(number_) ? *counter_ : *strategy_;
  strategy.OnEvent(now, PublishedEvent{number_, stake_.weight}, actions);
  Run(now, actions, out);
}

void Averaging::OnPublishRefused(Time now, const PublishRefused& refused, Actions& out) {
  asked_.reset();
  if (std::exchange(asked_by_mixing_, false)) {
    mixing_.OnRefused(now, out);
    if (stage_ == Stage::kPublishing) RequestSnapshot(out);
    return AskForMixing(out);
  }
  if (stage_ != Stage::kPublishing) return;
  if (refused.averaging != number_) return RequestSnapshot(out);
  log_.Warning("the trainer gave no snapshot", {{"averaging", refused.averaging}});
  mark_ = {.step = progress_.step, .samples = progress_.samples, .time = now};
  FinishAbandon(now, number_, out);
}

void Averaging::OnStateHashed(const StateHashed& hashed) {
  if (hashed.averaging == committed_.averaging && !overwritten_) committed_.root = hashed.root;
}

// ---- deadlines

void Averaging::OnTimer(Time now, Actions& out) {
  rounds_.OnTimer(now, out);
  CollectEnded(now, out);
  if (now >= mixing_.NextDeadline()) mixing_.OnTimer(now, out);
  AskForMixing(out);
  if (hold_ && now >= hold_->until) {
    hold_.reset();
    Resume(now, out);
  }
  CheckDue(now, out);
}

Time Averaging::NextDeadline() const {
  Time next = std::min(rounds_.NextDeadline(), mixing_.NextDeadline());
  if (hold_) next = std::min(next, hold_->until);
  if (!Ready() || !idle()) return next;
  if (announced_) next = std::min(next, announced_at_ + config_.heartbeat);
  const AveragingConfig& averaging = seating_.view().config;
  if (mixing_.on_graph()) {
    if (!announced_ && Counting(next_)) next = std::min(next, mark_.time + kCountEvery);
  } else if (averaging.interval_unit == IntervalUnit::kSeconds && !announced_)
    next = std::min(next, mark_.time + Seconds(averaging.interval));
  if (!mixing_.on_graph() && !announced_ && mark_.time < LastDue())
    next = std::min(next, LastDue());
  return next;
}

}  // namespace crowdsurf::worker
