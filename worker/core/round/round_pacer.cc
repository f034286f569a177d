#include "worker/core/round/round_pacer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/core/round/round.h"

namespace crowdsurf::worker {
namespace {

// Of the waits in a ballot and for results that were asked for, and of the silence that is
// suspicious.
constexpr int kMaxDoublings = 6;
constexpr double kDeviations = 6;  // docs/round.md: median + 6 MAD
// ... nor less than so many of the longest gaps: where processors are short or links long, gaps
// have a long tail, and a ballot for nothing costs the round two round trips.
constexpr double kLongestGaps = 2.5;
// In the patience for suspects: one FETCH may get lost, and members whose round is over say nothing
// of themselves.
constexpr double kSuspectsAsked = 4;
// As long as so many of the longest pauses: a link may have lost three quarters of its bandwidth.
constexpr double kPauses = 4;
// A turn has a ballot of each member. A thin link makes members late, which costs some ballots.
constexpr size_t kTurnsThatPause = 2;

RankSet MembersOf(const RoundSpec& spec) {
  RankSet members;
  for (size_t rank = 0; rank < spec.cells.size(); ++rank)
    if (spec.cells[rank].member) members.Insert(rank);
  return members;
}

// The deviation from ordered[middle] that has `middle` smaller ones: deviations ascend outwards
// from there, so the two sides are merged up to it.
Duration MiddleDeviation(const std::vector<Duration>& ordered, size_t middle) {
  const Duration median = ordered[middle];
  size_t below = middle;      // ordered[below - 1] is the next on that side
  size_t above = middle + 1;  // ordered[above] is the next on this one
  Duration deviation;         // the smallest is the median's own, zero
  for (size_t taken = 0; taken < middle; ++taken) {
    const Duration down = below > 0 ? median - ordered[below - 1] : Duration::Infinite();
    const Duration up = above < ordered.size() ? ordered[above] - median : Duration::Infinite();
    below > 0 && down <= up ? --below : ++above;
    deviation = std::min(down, up);
  }
  return deviation;
}

}  // namespace

void DurationWindow::Add(Duration sample) {
  samples_.push_back(sample);
  ordered_.insert(std::upper_bound(ordered_.begin(), ordered_.end(), sample), sample);
  if (samples_.size() > kWindow) {
    ordered_.erase(std::lower_bound(ordered_.begin(), ordered_.end(), samples_.front()));
    samples_.pop_front();
  }
  bound_.reset();
}

void DurationWindow::RaiseNewest(Duration sample) {
  CHECK(!samples_.empty());
  if (sample <= samples_.back()) return;
  ordered_.erase(std::lower_bound(ordered_.begin(), ordered_.end(), samples_.back()));
  ordered_.insert(std::upper_bound(ordered_.begin(), ordered_.end(), sample), sample);
  samples_.back() = sample;
  bound_.reset();
}

Duration DurationWindow::Bound(double k) const {
  CHECK(!samples_.empty());
  if (bound_ && bound_->first == k) return bound_->second;
  const size_t middle = ordered_.size() / 2;
  bound_ = {k, ordered_[middle] + MiddleDeviation(ordered_, middle) * k};
  return bound_->second;
}

// ---- RoundTimes -------------------------------------------------------------------------------
void RoundTimes::OnAwake(Time now) {
  if (!Awake(now)) listening_since_ = now;
  awake_ = std::max(awake_, now);
}

void RoundTimes::OnHeard(Time now, const PeerId& peer) {
  const auto it = heard_.find(peer);
  if (it != heard_.end()) {
    Heard& heard = it->second;
    heard.last = now;
    if (now - heard.sign < BeatEvery() * 0.5) return;
    // Not what lies between rounds, where nobody owes anybody a frame, nor a stall of its own.
    const bool listened = Awake(now) && heard.sign >= listening_since_;
    if (listened && now - heard.sign <= config_.max_silence) heard.gaps.Add(now - heard.sign);
    heard.sign = now;
    return;
  }
  if (heard_.size() >= kMaxPeers) {
    heard_.erase(std::min_element(heard_.begin(), heard_.end(), [](const auto& a, const auto& b) {
      return a.second.last < b.second.last;
    }));
  }
  heard_[peer] = Heard{.last = now, .sign = now, .gaps = {}};
}

void RoundTimes::OnChunksLeft(const PeerId& peer, uint32_t chunks) { flows_[peer].left += chunks; }

std::set<PeerId> RoundTimes::TakeFlows() {
  std::set<PeerId> hear;
  for (auto& [peer, flow] : flows_) {
    const bool flows = std::exchange(flow.left, 0) >= kFlow;
    if (std::exchange(flow.flowed, flows) && flows) hear.insert(peer);
  }
  std::erase_if(flows_, [](const auto& item) { return !item.second.flowed; });
  return hear;
}

void RoundTimes::Forget(const PeerId& peer) { heard_.erase(peer); }

std::optional<Time> RoundTimes::LastHeard(const PeerId& peer) const {
  const auto it = heard_.find(peer);
  if (it == heard_.end()) return std::nullopt;
  return it->second.last;
}

Duration RoundTimes::StartDeadline() const {
  if (starts_.empty()) return Backed(config_.first_start);
  Duration learnt = starts_.Bound(kDeviations);
  // Two samples, one of them late, would make it seven times the late one. One, or some that happen
  // to be alike, would take the next that is a little later for absent.
  if (starts_.size() < kFewStarts)
    learnt = std::min(std::max(learnt, starts_.Largest() * 4),
                      std::max(config_.first_start, starts_.Largest()));
  return Backed(std::max(config_.min_start, learnt));
}

Duration RoundTimes::LeastSilence() const {
  if (lates_.size() < kFewLates) return config_.min_silence;
  return config_.min_silence + lates_.Bound(kDeviations);
}

Duration RoundTimes::Silence(const PeerId& peer, int doublings) const {
  const auto it = heard_.find(peer);
  if (it == heard_.end() || it->second.gaps.empty()) return Backed(config_.max_silence);
  const Duration most = std::max(config_.min_silence, config_.max_silence);
  const Duration least = std::min(LeastSilence(), most);
  const DurationWindow& gaps = it->second.gaps;
  const Duration learnt = std::clamp(gaps.Bound(kDeviations), least, most);
  const Duration longest = gaps.Largest() * kLongestGaps;
  const Duration doubled = learnt * static_cast<double>(1 << doublings);
  return Backed(std::min(std::max(doubled, longest), most));
}

Duration RoundTimes::HaveWait() const {
  if (haves_.empty()) return Backed(config_.max_silence);
  return Backed(std::max(config_.min_silence, haves_.Bound(kDeviations)));
}

// A round trip is part of every HAVE wait, so twice that wait covers the two of a hand-over.
Duration RoundTimes::HandOver() const { return HaveWait() * 2; }

Duration RoundTimes::SitOut(Duration pause) const {
  const Duration usual = pauses_.empty() ? config_.first_pause : pauses_.Bound(kDeviations);
  return Backed(std::max(config_.min_sit_out, std::max(usual, pause) * kPauses));
}

void RoundTimes::OnStarted(Duration spread, uint32_t earlier) {
  const bool again = std::exchange(started_, true) && earlier > 0;
  again ? starts_.RaiseNewest(spread) : starts_.Add(spread);
}

void RoundTimes::OnHaves(Duration since_own_have) { haves_.Add(since_own_have); }

void RoundTimes::OnEnded(Duration pause, Course course) {
  pauses_.Add(pause);
  if (course == Course::kMistaken) OnMistaken();
  if (course == Course::kFast && backoff_ > 0) --backoff_;
}

void RoundTimes::OnMistaken() { backoff_ = std::min(backoff_ + 1, kMaxBackoff); }

// ---- RoundPacer -------------------------------------------------------------------------------
void Apply(const Due& due, Round& round, RoundActions& out) {
  switch (due.kind) {
    case Due::Kind::kSuspect:
      return round.OnSuspect(due.peer, due.cause, out);
    case Due::Kind::kTrust:
      return round.OnTrusted(due.peer, out);
    case Due::Kind::kLate:
      return round.OnCoordinatorLate(out);
    case Due::Kind::kSitOut:
      return round.OnSitOut(out);
    case Due::Kind::kBeat:
      return round.OnBeat(due.hear, out);
  }
}

RoundPacer::RoundPacer(Time now, RoundTimes& times, uint32_t earlier, Time begun)
    : times_(&times),
      earlier_(earlier),
      opened_(now),
      begun_(begun),
      moved_(now),
      advanced_(now),
      held_(now),
      beat_(now) {
  times_->OnAwake(now);
  times_->OnOpened(earlier);
}

// A member that waited for an absent one in an earlier round comes that much later to this one: it
// must not be taken for absent because of that.
Duration RoundPacer::StartDeadline() const {
  return times_->StartDeadline() * static_cast<double>(1 + earlier_);
}

Duration RoundPacer::SitOut() const {
  return std::max(times_->SitOut(pause_), StartDeadline() * 2);
}

void RoundPacer::OnDown(Time now, const PeerId& peer) {
  suspected_[peer] = now + times_->BeatEvery() * 2.0;
}

void RoundPacer::SeeAdvance(Time now, const Round& round) {
  if (round.advances() == advances_) return;
  advances_ = round.advances();
  // A member that opens the round late, and this process where it did not run, make no pause in it.
  // Nor do many ballots: their pauses show what deaths and liars cost, not how fast links are. Each
  // could be four times as long as the one before.
  const size_t most = kTurnsThatPause * round.spec().cells.size();
  if (phase_ != RoundPhase::kGathering && round.Promised().promised <= most)
    pause_ = std::max(pause_, now - std::max(advanced_, times_->listening_since()));
  advanced_ = now;
}

// It is over. One that was given up says how long was too long, not how long a pause is.
void RoundPacer::SeeEnd(Time now, const Round& round) {
  const Outcome outcome = round.outcome()->outcome;
  if (!Applied(outcome)) {
    if (mistaken_) times_->OnMistaken();
    return;
  }
  const bool fast = outcome == Outcome::kFast && round.ballot() == 0;
  if (fast && phase_ == Round::Phase::kHeld) times_->OnHaves(now - held_);
  const bool mistaken = round.ballot() > 0 && round.outcome()->members == MembersOf(round.spec());
  times_->OnEnded(pause_, fast       ? RoundTimes::Course::kFast
                          : mistaken ? RoundTimes::Course::kMistaken
                                     : RoundTimes::Course::kRepaired);
}

// Also of members that were left out: else rounds would never wait long enough for them. One that
// never comes keeps nobody from learning of the others.
void RoundPacer::SeeStart(Time now, const Round& round) {
  // A member without others waits for nobody, and learns nothing.
  if (started_ || MembersOf(round.spec()).size() == 1) return;
  const auto has_spoken = [&](const PeerId& peer) { return round.HasSpoken(peer); };
  const auto late = static_cast<size_t>(std::ranges::count_if(found_absent_, has_spoken));
  started_ = round.all_opened();
  if (started_ || late > came_late_)
    times_->OnStarted(std::min(now - begun_, SitOut()), came_late_ > 0 ? 1 : earlier_);
  came_late_ = late;
}

void RoundPacer::Observe(Time now, const Round& round) {
  SeeAdvance(now, round);
  if (round.progress() != progress_) {
    progress_ = round.progress();
    moved_ = now;
    late_ = 0;
  }
  SeeStart(now, round);
  const Round::Phase phase = round.phase();
  if (phase != phase_) {
    if (phase == Round::Phase::kHeld) held_ = now;
    if (phase == Round::Phase::kOver) SeeEnd(now, round);
    phase_ = phase;
    moved_ = now;
  }
  if (round.ballot() != ballot_) {
    if (ballot_ > 0) ballots_again_ = std::min(ballots_again_ + 1, kMaxDoublings);
    ballot_ = round.ballot();
    moved_ = now;
  }
  if (!round.AwaitsSuspects())
    awaits_suspects_ = Time();
  else if (awaits_suspects_.unset())
    awaits_suspects_ = now;
  const std::optional<RankSet> for_members = round.WaitingForMembers();
  if (for_members && for_members == for_members_) return;  // few chunks change that
  for_members_ = for_members;
  const std::set<PeerId> waiting = round.WaitingFor();
  std::erase_if(awaited_, [&](const auto& item) { return waiting.count(item.first) == 0; });
  for (const PeerId& peer : waiting) {
    const bool must_reply = round.MustReply(peer);
    const auto [at, fresh] = awaited_.emplace(peer, Awaited{now, must_reply});
    // A stand-in that owed nothing so far is asked as a witness: its time begins with that.
    if (must_reply && !at->second.must_reply) at->second.since = now;
    at->second.must_reply = must_reply;
  }
}

// When nobody is silent and yet nothing moves.
Time RoundPacer::LateAt(const Round& round) const {
  switch (round.phase()) {
    case Round::Phase::kHeld:
      return held_ + times_->HaveWait() > moved_ ? held_ + times_->HaveWait()
                                                 : moved_ + times_->HaveWait();
    case Round::Phase::kBallot:
      // Twice as long each time: what is awaited may be a stand-in that is still in an earlier
      // round, and ballots are few.
      return moved_ + times_->HandOver() * static_cast<double>(1 << lates_);
    case Round::Phase::kAdopting:  // every one asks again for what may be on its way
      if (!awaits_suspects_.unset())
        return moved_ + times_->SuspectsPatience() * (1 / kSuspectsAsked);
      return moved_ + times_->HandOver() * static_cast<double>(1 << std::min(late_, kMaxDoublings));
    case Round::Phase::kReducing:
      return moved_ + times_->Stuck(pause_);
    default:
      return Time::Infinite();
  }
}

template <class Visit>
void RoundPacer::Pending(const Round& round, Visit&& visit) const {
  if (round.over()) return;
  const Time start = std::min(start_by_, opened_ + StartDeadline());
  std::set<PeerId> absent;
  if (!round.all_ready()) absent = round.Absent();
  // Once each: a member whose READY was lost but that is heard takes part in the ballot.
  for (const PeerId& peer : absent)
    if (!found_absent_.contains(peer))
      visit(start, Due{Due::Kind::kSuspect, peer, SuspicionCause::kAbsent, {}});
  for (const auto& [peer, awaited] : awaited_) {
    if (absent.count(peer) > 0 && !found_absent_.contains(peer)) continue;
    const Time heard = times_->LastHeard(peer).value_or(awaited.since);
    Time silent = std::max({heard, awaited.since, times_->listening_since()}) +
                  times_->Silence(peer, ballots_again_);
    // A stand-in may still be in its own last round until the start deadline.
    if (silent < start && !round.MustReply(peer)) silent = start;
    visit(silent, Due{Due::Kind::kSuspect, peer, SuspicionCause::kSilence, {}});
  }
  for (const auto& [peer, when] : suspected_) {
    // It lives, but is in another view or list: no ballot is to wait for its answer.
    if (found_absent_.contains(peer) && !round.HasSpoken(peer)) continue;
    const std::optional<Time> heard = times_->LastHeard(peer);
    if (heard && *heard > when) visit(*heard, Due{Due::Kind::kTrust, peer, {}, {}});
  }
  // Where it waits for stand-ins alone, nobody owes it anything before the start deadline.
  const auto owes = [](const auto& item) { return item.second.must_reply; };
  const bool owed = awaited_.empty() || std::ranges::any_of(awaited_, owes);
  const bool waits = !owed && round.phase() == RoundPhase::kReducing;
  visit(waits ? std::max(LateAt(round), start) : LateAt(round), Due{Due::Kind::kLate, {}, {}, {}});
  visit(std::max(advanced_, times_->listening_since()) + SitOut(),
        Due{Due::Kind::kSitOut, {}, {}, {}});
  if (!awaits_suspects_.unset())
    visit(awaits_suspects_ + times_->SuspectsPatience(), Due{Due::Kind::kSitOut, {}, {}, {}});
  visit(beat_ + times_->BeatEvery(), Due{Due::Kind::kBeat, {}, {}, {}});
}

std::vector<Due> RoundPacer::TakeDue(Time now, const Round& round) {
  times_->OnAwake(now);
  std::vector<Due> due;
  Pending(round, [&](Time at, const Due& what) {
    if (at <= now) due.push_back(what);
  });
  for (Due& what : due) {
    switch (what.kind) {
      case Due::Kind::kSuspect:
        if (what.cause == SuspicionCause::kAbsent) found_absent_.insert(what.peer);
        suspected_[what.peer] = now;
        awaited_.erase(what.peer);
        for_members_.reset();
        break;
      case Due::Kind::kTrust:
        suspected_.erase(what.peer);
        mistaken_ = true;
        break;
      case Due::Kind::kBeat:
        times_->OnBeatLate(now - (beat_ + times_->BeatEvery()));
        beat_ = now;
        what.hear = times_->TakeFlows();
        break;
      case Due::Kind::kLate:
        if (phase_ == Round::Phase::kBallot) lates_ = std::min(lates_ + 1, kMaxDoublings);
        ++late_;
        moved_ = now;
        break;
      default:
        moved_ = now;
    }
  }
  return due;
}

Time RoundPacer::NextDeadline(const Round& round) const {
  Time next = Time::Infinite();
  Pending(round, [&](Time at, const Due&) { next = std::min(next, at); });
  return next;
}

}  // namespace crowdsurf::worker
