#include "worker/core/membership/membership.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "worker/core/averaging/averaging.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

// A peer that keeps speaking of another view is told of ours this often.
constexpr Duration kTellGap = Milliseconds(100);
constexpr size_t kMaxTold = 4096;
// Time a leaving peer gives the averaging that is under way (of a notice's last 10 s).
constexpr Duration kLeavePatience = Seconds(3);
// Before that: for one more averaging that takes in what the trainer has trained of its leases.
constexpr Duration kHandInPatience = Seconds(3);
// After answering BRANCH OPEN: without a view by then the peer asks for a seat again.
constexpr Duration kBranchPatience = Seconds(4);

}  // namespace

Membership::Membership(const PeerConfig& config, PeerMetrics& metrics, Logger log, Rng rng,
                       Uses uses)
    : config_(config),
      metrics_(metrics),
      log_(log.For("membership")),
      rng_(rng),
      roster_(uses.roster),
      averaging_(uses.averaging),
      joining_(config, uses.roster, rng.Fork("joining")),
      witness_(config.job),
      newest_(config.averaging) {}

Member Membership::Self() const {
  return {.id = config_.id,
          .cell = 0,
          .joined_unix_ms = config_.started_unix_ms,
          .on_demand = config_.on_demand,
          .bandwidth_class = 0};
}

LineageRank Membership::lineage() const {
  if (!seating_) return {};
  return {.members = seating_->view().fork_members,
          .origin = OriginOf(seating_->view(), seating_->hash())};
}

// The longest-lived live witness; without any, the longest-lived live member.
std::optional<PeerId> Membership::steward() const {
  return seating_ ? StewardOf(*seating_) : std::nullopt;
}

std::optional<PeerId> Membership::StewardOf(const Seating& seating) const {
  const auto oldest = [&](auto&& eligible) {
    const Member* best = nullptr;
    for (const auto& [cell, member] : seating.occupants()) {
      // Ages first: to compare them costs least.
      if (best != nullptr &&
          std::tie(best->joined_unix_ms, best->id) <= std::tie(member.joined_unix_ms, member.id))
        continue;
      if (!down_.contains(member.id) && eligible(member.id)) best = &member;
    }
    return best;
  };
  const auto& witnesses = seating.view().witnesses;
  const Member* best = oldest([&](const PeerId& id) {
    return std::find(witnesses.begin(), witnesses.end(), id) != witnesses.end();
  });
  if (best == nullptr) best = oldest([](const PeerId&) { return true; });
  if (best == nullptr) return std::nullopt;
  return best->id;
}

std::vector<PeerId> Membership::Lost() const {
  std::vector<PeerId> lost;
  for (const PeerId& peer : down_) {
    const RosterRecord* record = roster_.Find(peer);
    // It lives, and leaves the job or sits in another lineage.
    const bool lives = record != nullptr && (record->leaving || doubted_.contains(peer));
    if (!departed_.contains(peer) && !lives) lost.push_back(peer);
  }
  return lost;
}

// ---- telling

std::vector<PeerId> Membership::Others(const Seating& seating) const {
  std::vector<PeerId> peers;
  for (const auto& [cell, member] : seating.occupants())
    if (member.id != config_.id) peers.push_back(member.id);
  return peers;
}

void Membership::SendAll(const std::vector<PeerId>& peers, const Message& message,
                         Actions& out) const {
  const Bytes body = EncodeMessage(message);
  for (const PeerId& peer : peers) out.push_back(Send{peer, body});
}

message::ViewNews Membership::NewsOf(Time now, const Seating& seating) const {
  std::vector<PeerId> peers = Others(seating);
  peers.push_back(config_.id);
  return {.view = Encode(seating.view()),
          .seats = {seating.seats().begin(), seating.seats().end()},
          .vacancies = {seating.vacancies().begin(), seating.vacancies().end()},
          .contacts = roster_.ContactsOf(peers),
          .committed = averaging_.job(),
          .job_seconds = clock_.seconds(now)};
}

// True: `peer` was told a moment ago, so a flood of its messages is not answered one by one.
bool Membership::Quiet(Time now, const PeerId& peer) {
  Time& last = told_[peer];
  if (!last.unset() && now - last < kTellGap) return true;
  last = now;
  if (told_.size() > kMaxTold) told_.clear();
  return false;
}

void Membership::TellSeats(Time now, const PeerId& peer, Actions& out) {
  if (!seating_ || Quiet(now, peer)) return;
  const message::ViewNews all = NewsOf(now, *seating_);
  SendAll({peer},
          message::SeatingNews{seating_->hash(), all.seats, all.vacancies, all.contacts,
                               seating_->MinorHash()},
          out);
}

// A round needs a list that all its members know, and the steward may die while it tells of a seat:
// the one that sits down, or is moved by a second seat, tells it as well.
void Membership::TellOwnSeat(Time now, Actions& out) {
  const auto cell = seating_->CellOf(config_.id);
  if (!cell || cell == told_cell_) return;
  told_cell_ = cell;
  // Above, news of a seat goes the steward's way alone: the view in it grows with the members.
  if (seating_->occupants().size() <= kTellEverybody)
    SendAll(Others(*seating_), NewsOf(now, *seating_), out);
}

void Membership::CompareSeats(Time now, const PeerId& peer, const Digest& seats, Actions& out) {
  if (seated() && seats != seating_->MinorHash()) TellSeats(now, peer, out);
}

bool Membership::IsOurs(Time now, const PeerId& from, const ViewHash& view, Actions& out) {
  if (!seating_) return false;
  if (view == seating_->hash()) {
    if (!seating_->Vacated(from)) {
      if (const auto at = heard_.find(from); at != heard_.end()) at->second = now;
      return true;
    }
    TellSeats(now, from, out);  // it was given up though it lives: it will ask for another seat
    return false;
  }
  if (Quiet(now, from)) return false;
  if (Forsaken(view))  // it counts on us there, in vain
    SendAll({from}, message::Leaving{view}, out);
  else if (std::find(past_.begin(), past_.end(), view) != past_.end())
    SendAll({from}, NewsOf(now, *seating_), out);
  else if (!pending_ || pending_->hash() != view)
    SendAll({from}, message::ViewAsk{}, out);
  return false;
}

// ---- entering and leaving views

// The newest configuration, unless its strategy does not take the members there are: an agent that
// starts with it in a bigger job must not make a view of it.
const AveragingConfig& Membership::ConfigOfNext() const {
  const bool fits = !seating_ || seating_->occupants().size() <= MaxMembersOf(newest_);
  return fits ? newest_ : seating_->view().config;
}

ViewFacts Membership::Facts() {
  return {.config = ConfigOfNext(),
          .first_averaging = averaging_.first_of_new_view(),
          .barrier = averaging_.first_of_new_view(),
          .base_samples = averaging_.job().job_samples,
          .seed = rng_.Next(),
          .target_met = target_met()};
}

// ---- local events

void Membership::OnConfig(const AveragingConfig& config) {
  if (config.generation <= newest_.generation) return;
  if (MakeStrategy(config.strategy, Rng(0)) == nullptr ||
      (seating_ && seating_->occupants().size() > MaxMembersOf(config))) {
    log_.Warning("configuration refused", {{"generation", config.generation}});
    return;
  }
  newest_ = config;
}

void Membership::OnPeerDown(Time now, const PeerId& peer, DownEvidence evidence, Actions& out) {
  joining_.OnPeerDown(peer);
  // A refused connection proves that it is gone; silence is judged with its record (FindSilent).
  if (!IsDead(evidence)) return;
  if (evidence == DownEvidence::kReplaced) Withdraw(peer);
  const bool fresh = down_.insert(peer).second;
  doubted_.erase(peer);
  joiners_.erase(peer);
  fetch_told_.erase(peer);
  ForgetStrangers();
  // Others concern no list: a view that takes them in passes this set on anew.
  if (fresh && seating_ && Concerns(*seating_, peer)) averaging_.SetDown(down_);
  if (leader_) leader_->OnPeerDown(now, peer, out);
}

// It sits in this view, or did.
bool Membership::Concerns(const Seating& seating, const PeerId& peer) const {
  return seating.CellOf(peer) || seating.view().Find(peer) != nullptr || seating.Vacated(peer) ||
         seating.SittingOf(peer) > 0;
}

// Peers come and go for as long as a job lasts. Those that no view and no record names any more are
// forgotten. Looking through all takes long: it is done when there are many.
void Membership::ForgetStrangers() {
  if (down_.size() < forget_at_) return;
  std::erase_if(down_, [&](const PeerId& peer) {
    return !(seating_ && Concerns(*seating_, peer)) && !(pending_ && Concerns(*pending_, peer)) &&
           !joiners_.contains(peer) && roster_.Find(peer) == nullptr && following_ != peer;
  });
  std::erase_if(doubted_, [&](const PeerId& peer) { return !down_.contains(peer); });
  forget_at_ = std::max(kMaxStrangersDown, 2 * down_.size());
}

void Membership::OnHeard(Time now, const PeerId& peer) {
  if (Gone(now, peer)) return;
  const auto at = heard_.find(peer);
  if (at != heard_.end() && !LeavesByItsRecord(peer)) at->second = now;
  doubted_.erase(peer);
  if (down_.erase(peer) > 0) averaging_.SetDown(down_);
}

void Membership::StartLeaving(Time now) {
  if (!leaving_since_) leaving_since_ = now;
}

// Silence counts only while this process listened: after it was stopped itself, everybody gets the
// whole time again. Heartbeats let a running process come here more often than that.
void Membership::ListenAnew(Time now) {
  if (settled_at_.unset() || now - settled_at_ <= roster_.Ttl() * 0.5) return;
  for (auto& [peer, heard] : heard_) heard = now;
}

void Membership::Settle(Time now, Actions& out) {
  ListenAnew(now);
  settled_at_ = now;
  if (left_job_) return;
  if (leaving_since_ && !handed_in_) {
    const bool patient = now - *leaving_since_ < kHandInPatience;
    handed_in_ = !(patient && averaging_.HandIn(now, out));
    if (handed_in_) leaving_since_ = now;
  }
  if (leaving()) {
    const bool patient = now - *leaving_since_ < kLeavePatience;
    averaging_.Drain(now, out);
    if (averaging_.rounds().open() && patient) return;
    averaging_.Depart(now, out);
    if (seating_) SendAll(Others(*seating_), message::Leaving{seating_->hash()}, out);
    left_job_ = true;
    out.push_back(Leave{"left"});
    return;
  }
  if (!left_.none() && now - left_since_ >= kBranchPatience && !leader_) Unseat(now, out);
  for (const PeerId& peer : averaging_.rounds().TakeDiffering()) TellSeats(now, peer, out);
  JudgeHints(now, out);
  if (JudgeRumors(now)) SeatsChanged(now, out);
  AskThoseAhead(now, out);
  TakePending(now, out);
  averaging_.SetEnd(newest_.target.seconds ? clock_.When(*newest_.target.seconds)
                                           : Time::Infinite());
  // It has no base, and cannot fetch one before the next is made: it gets one with the next view.
  // In a round it is with the others again: what comes of that is seen first.
  const bool behind = averaging_.left_behind(now) && !averaging_.rounds().open();
  if (seated() && behind) GiveSeatBack(now, out);
  if (seated()) {
    TendFirst(out);
    AnswerWaiting(now, out);
    Govern(now, out);
    TakePending(now, out);
    if (seated()) SeekBetterLineage(now, out);
  } else {
    SeekSeat(now, out);
  }
}

Time Membership::NextDeadline() const {
  if (left_job_) return Time::Infinite();
  if (leaving()) return *leaving_since_ + kLeavePatience;
  Time next = Time::Infinite();
  // What was due already and could not be done waits for the next input, not for the clock.
  const auto consider = [&](Time at) {
    if (at > settled_at_) next = std::min(next, at);
  };
  if (leaving_since_) consider(*leaving_since_ + kHandInPatience);
  if (pending_) consider(pending_since_ + kBarrierPatience);
  consider(RumorDeadline());
  if (!ahead_.empty()) consider(ask_ahead_at_);
  for (const Hint& hint : hints_) consider(hint.confirmation.NextDeadline());
  if (!left_.none()) consider(left_since_ + kBranchPatience);
  if (proposer_) consider(proposer_->NextDeadline());
  if (leader_) consider(leader_->NextDeadline());
  if (!seated() && trainer_ && !fetching_) consider(joining_.NextDeadline());
  if (!fetch_again_.unset()) consider(fetch_again_);
  if (!follow_until_.unset()) consider(follow_until_);
  if (!thin_since_.unset()) consider(thin_since_ + config_.view_debounce);
  if (newest_.target.seconds && is_steward()) consider(clock_.When(*newest_.target.seconds));
  for (const auto& [peer, joiner] : joiners_) consider(joiner.since + config_.view_debounce);
  return next;
}

}  // namespace crowdsurf::worker
