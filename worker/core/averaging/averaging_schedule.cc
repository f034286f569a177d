// When an averaging is due, how it begins, and until when what is waited for (averaging.h).
#include <algorithm>
#include <optional>
#include <set>

#include "worker/core/averaging/averaging.h"
#include "worker/core/port/config.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kDueAhead = 2;  // averagings whose due lists are kept
// Where a strategy on a graph moves the parameters, averagings count the job's samples, this often,
// and with `rounds: One` so long after each round: halved, twice the small frames; doubled, a job
// overshoots its target by as much.
constexpr Duration kCountEvery = Seconds(1);

// How long before the end of a job's time its last averaging is due. Steps and rounds that take
// longer together miss the end, and what they would have brought is left out, as it was without.
constexpr Duration kLastAveraging = Seconds(1);

// A snapshot is taken at the step boundary after it was asked for. A trainer that waits for results
// is asked within the last step of its interval, so that every snapshot is exactly `interval` steps
// from the last result: who takes more steps than others between two averages pulls all of them
// towards its own data.
double StepsAhead(const AveragingConfig& averaging) {
  return OverlapOf(averaging) == Overlap::kBlocking ? 1 : 0;
}

// Else Seating::AsOf is the seating itself.
bool SomeBeginLater(const Seating& seating, AveragingId averaging) {
  const auto later = [&](const auto& entry) { return entry.first_averaging > averaging; };
  return std::ranges::any_of(seating.seats(), later) ||
         std::ranges::any_of(seating.vacancies(), later);
}

}  // namespace

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

Averaging::Interval Averaging::IntervalNow() const {
  const AveragingConfig& averaging = seating_.view().config;
  if (WarmsUp(job_.job_samples)) return {IntervalUnit::kSteps, 1};
  return {averaging.interval_unit, averaging.interval};
}

bool Averaging::IntervalOver(Time now) const {
  if (Gathers()) return HasShare();
  if (Hurried(now)) return true;
  if (mixing_.on_graph()) return !Counting(next_) || now - mark_.time >= kCountEvery;
  if (now >= LastDue() && mark_.time < LastDue()) return true;
  // A count is due a second after the round before it, and never holds the next one up. The last
  // one comes at once.
  if (Counting(next_) && (now - mark_.time >= kCountEvery || now >= LastDue())) return true;
  const Interval interval = IntervalNow();
  switch (interval.unit) {
    case IntervalUnit::kSteps:
      return static_cast<double>(progress_.step) + StepsAhead(seating_.view().config) >=
             static_cast<double>(mark_.step) + interval.length;
    case IntervalUnit::kSamples:
      return progress_.samples - mark_.samples >= interval.length;
    case IntervalUnit::kSeconds:
      return now - mark_.time >= Seconds(interval.length);
  }
  return false;
}

void Averaging::AskToBeWoken(Actions& out) {
  if (!Ready() || mixing_.on_graph()) return;
  if (Gathers()) return TellOfShare(out);
  const Interval interval = IntervalNow();
  WakeAt wake{.steps = 0, .samples = 0};
  if (interval.unit == IntervalUnit::kSteps)
    wake.steps = mark_.step + static_cast<uint64_t>(std::max(
                                  interval.length - StepsAhead(seating_.view().config), 0.0));
  if (interval.unit == IntervalUnit::kSamples) wake.samples = mark_.samples + interval.length;
  if (wake.steps != 0 || wake.samples != 0) out.push_back(wake);
}

void Averaging::CheckDue(Time now, Actions& out) {
  if (!Ready() || !idle() || hashing_ || GoCatchUp(now, out)) return;
  // Said once, it stays said: what it was wanted for may have come otherwise.
  if (!announced_ && !IntervalOver(now)) return;
  const bool first = !announced_;
  // Repeated with each heartbeat, for members that missed it.
  if (!first && now - announced_at_ < config_.heartbeat) return;
  announced_ = true;
  announced_at_ = now;
  due_[next_].insert(config_.id);
  Tell(message::DueFor{seating_.hash(), next_, Announced(), seating_.MinorHash()}, out);
  if (WantsOneAtOnce()) Tell(message::LeasesWanted{seating_.hash(), next_}, out);
  MaybeBegin(now, out);
}

void Averaging::OnDue(Time now, const PeerId& from, AveragingId averaging, Actions& out) {
  if (!seated_ || averaging < next()) return;
  if (!idle() && averaging > next()) jump_ = std::max(jump_, averaging);
  if (idle() && averaging > next_) Advance(now, averaging, out);  // we missed one: follow
  if (averaging > next() + kDueAhead) return;
  due_[averaging].insert(from);
  MaybeBegin(now, out);
}

// Averagings below `next` are over elsewhere.
void Averaging::Advance(Time now, AveragingId next, Actions& out) {
  next_ = next;
  due_.erase(due_.begin(), due_.lower_bound(next));
  announced_ = false;
  CheckDue(now, out);
}

void Averaging::MaybeBegin(Time now, Actions& out) {
  if (!Ready() || !idle()) return;
  const auto at = due_.find(next_);
  if (at == due_.end()) return;
  // Each word of a member that is due comes here: seats are copied only where some begin later.
  std::optional<Seating> earlier;
  if (SomeBeginLater(seating_, next_)) earlier = seating_.AsOf(next_);
  const Seating& seating = earlier ? *earlier : seating_;
  size_t due = 0;
  size_t live = 0;
  for (const auto& [cell, member] : seating.occupants()) {
    if (down_.contains(member.id)) continue;
    ++live;
    if (at->second.contains(member.id)) ++due;
  }
  // A step of gradients has the shares of all.
  const bool enough = Gathers() ? due >= live || IsLate(now, due, live) : 2 * due >= live;
  if (due > 0 && enough) BeginNow(now, next_, out);
}

void Averaging::OnBegin(Time now, AveragingId averaging, Actions& out) {
  if (Ready() && averaging >= next()) BeginNow(now, averaging, out);
}

void Averaging::BeginNow(Time now, AveragingId averaging, Actions& out) {
  if (averaging <= begun_ || !seating_.AsOf(averaging).CellOf(config_.id)) return;
  ledger_sync_.OnNeeded(now);
  if (Held(now, averaging)) {
    held_ = std::max(held_, averaging);
    return;
  }
  begun_ = averaging;
  // Each member passes BEGIN on once (begun_): if one that lives has heard it, all do.
  Tell(message::Begin{seating_.hash(), averaging}, out);
  if (stage_ == Stage::kRounds || stage_ == Stage::kHolding) {
    // The others are past our averaging: a member that is not in our round yet does not come any
    // more.
    rounds_.StopGathering(now, out);
    CollectEnded(now, out);
    return;  // FinishDelivery or FinishAbandon goes on with it
  }
  // The trainer's step is longer than the others': overtaken by each count, its snapshots would
  // never come into a mean. GoOn counts with it afterwards.
  if (stage_ == Stage::kPublishing && Counting(averaging) && IsOneRound(number_)) return;
  TakePart(now, averaging, out);
}

void Averaging::StartPublish(Time now, AveragingId averaging, Actions& out) {
  stage_ = Stage::kPublishing;
  number_ = averaging;
  next_ = averaging;
  announced_ = false;
  due_.erase(due_.begin(), due_.upper_bound(averaging));
  snapshotted_ = false;
  if (!Counting(averaging)) return RequestSnapshot(out);
  // Counting needs no snapshot: the totals as last reported are the weight.
  snapshot_ = std::max(counted_, progress_.samples);
  leases_.OnSnapshot(progress_.leases.at);
  // With `rounds: One` the interval is from snapshot to snapshot.
  if (mixing_.on_graph())
    mark_ = {.step = progress_.step, .samples = progress_.samples, .time = now};
  OpenTrip(now, out);
}

bool Averaging::Counting(AveragingId averaging) const {
  if (mixing_.on_graph()) return averaging != seating_.view().first_averaging;
  return turns_.Of(averaging) == Turn::kCount;
}

// ---- deadlines

void Averaging::OnTimer(Time now, Actions& out) {
  rounds_.OnTimer(now, out);
  CollectEnded(now, out);
  if (now >= mixing_.NextDeadline()) mixing_.OnTimer(now, out);
  AskForOthers(out);
  if (gives_first() && now >= first_.until) FailFirst(now, out);
  if (now >= PartDeadline()) LoseFilling(now, out);
  if (ledger_sync_.OnTimer(now)) Resume(now, out);
  if (hold_ && now >= hold_->until) {
    hold_.reset();
    Resume(now, out);
  }
  CheckDue(now, out);
  if (Gathers()) MaybeBegin(now, out);
}

Time Averaging::NextDeadline() const {
  Time next = std::min({rounds_.NextDeadline(), mixing_.NextDeadline(), PartDeadline()});
  if (hold_) next = std::min(next, hold_->until);
  next = std::min(next, ledger_sync_.NextDeadline());
  if (gives_first()) next = std::min(next, first_.until);
  if (!Ready() || !idle() || hashing_ || catch_up_.busy()) return next;
  if (announced_) next = std::min(next, announced_at_ + config_.heartbeat);
  if (!announced_ && HurryAt()) next = std::min(next, *HurryAt());
  if (Gathers()) {
    const bool waits = half_due_.first == next_ && !half_due_.second.unset();
    return waits ? std::min(next, half_due_.second + kSharePatience) : next;
  }
  if (!announced_ && Counting(next_)) next = std::min(next, mark_.time + kCountEvery);
  const Interval interval = IntervalNow();
  if (!mixing_.on_graph() && interval.unit == IntervalUnit::kSeconds && !announced_)
    next = std::min(next, mark_.time + Seconds(interval.length));
  if (!mixing_.on_graph() && !announced_ && mark_.time < LastDue())
    next = std::min(next, LastDue());
  return next;
}

}  // namespace crowdsurf::worker
