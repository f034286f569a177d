#include "worker/core/membership.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// A peer that keeps speaking of another view is told of ours this often.
constexpr Duration kTellGap = Milliseconds(100);
constexpr size_t kMostTold = 4096;
// Time a leaving peer gives the averaging that is under way (DESIGN 4: designed for 10 s in all).
constexpr Duration kLeavePatience = Seconds(3);
// After answering BRANCH OPEN: without a view by then the peer asks for a seat again.
constexpr Duration kBranchPatience = Seconds(4);
// For an averaging of the parent that others were in and that does not reach this peer.
constexpr Duration kBarrierPatience = Seconds(1);

}  // namespace

Membership::Membership(const PeerConfig& config, PeerMetrics& metrics, Logger log, Rng rng,
                       Roster& roster, Averaging& averaging)
    : config_(config),
      metrics_(metrics),
      log_(log.For("membership")),
      rng_(rng),
      roster_(roster),
      averaging_(averaging),
      joining_(config, roster, rng.Fork("joining")),
      newest_(config.averaging) {}

Member Membership::Self() const {
  return {.id = config_.id,
          .cell = 0,
          .joined_unix_ms = config_.started_unix_ms,
          .on_demand = config_.on_demand,
          .bandwidth_class = 0};
}

LineRank Membership::line() const {
  if (!seating_) return {};
  return {.members = seating_->view().fork_members,
          .origin = OriginOf(seating_->view(), seating_->hash())};
}

// The longest-lived live witness; without any, the longest-lived live member.
std::optional<PeerId> Membership::steward() const {
  if (!seating_) return std::nullopt;
  const auto oldest = [&](auto&& eligible) {
    const Member* best = nullptr;
    for (const auto& [cell, member] : seating_->occupants()) {
      if (down_.contains(member.id) || !eligible(member.id)) continue;
      if (best == nullptr ||
          std::tie(member.joined_unix_ms, member.id) < std::tie(best->joined_unix_ms, best->id))
        best = &member;
    }
    return best;
  };
  const auto& witnesses = seating_->view().witnesses;
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
    if (!departed_.contains(peer) && (record == nullptr || !record->leaving)) lost.push_back(peer);
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

bool Membership::Quiet(Time now, const PeerId& peer) {
  Time& last = told_[peer];
  if (!last.unset() && now - last < kTellGap) return true;
  last = now;
  if (told_.size() > kMostTold) told_.clear();
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

// A round needs a list that all its members know, and whoever gave a seat may die while it tells:
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

ViewFacts Membership::Facts() {
  return {.config = newest_,
          .first_averaging = averaging_.first_of_new_view(),
          .barrier = averaging_.first_of_new_view(),
          .base_samples = averaging_.job().job_samples,
          .seed = rng_.Next(),
          .target_met = target_met()};
}

bool Membership::Forsaken(const ViewHash& view) const {
  return std::any_of(forsaken_.begin(), forsaken_.end(),
                     [&](const Entered& left) { return left.view == view; });
}

// Whoever sat in an ancestor of a forsaken view could not follow it: that way leads through it.
bool Membership::Forsaken(const View& view, const ViewHash& hash) const {
  const ViewHash origin = OriginOf(view, hash);
  return std::any_of(forsaken_.begin(), forsaken_.end(), [&](const Entered& left) {
    return left.view == hash || (left.origin == origin && view.epoch <= left.epoch);
  });
}

void Membership::Forsake(const Entered& view) {
  if (view.view.none() || Forsaken(view.view)) return;
  forsaken_.push_back(view);
  if (forsaken_.size() > kMostPast) forsaken_.pop_front();
}

// Does this decided view supersede ours?
bool Membership::Wants(const Seating& next) const {
  const bool included = next.CellOf(config_.id).has_value();
  const View& view = next.view();
  if (!seated()) {
    const bool older = OriginOf(view, next.hash()) == last_.origin && view.epoch < last_.epoch;
    return included && !older;
  }
  if (view.branch && view.parent == seating_->hash()) return included && left_ == view.parent;
  const LineRank theirs{.members = view.fork_members, .origin = OriginOf(view, next.hash())};
  if (theirs.origin == line().origin) return included && view.epoch > seating_->view().epoch;
  return included && theirs.Beats(line());
}

void Membership::TakePending(Time now, Actions& out) {
  if (!pending_) return;
  const View& view = pending_->view();
  const bool breaks = left_ == view.parent && !left_.none();
  // Averagings below the barrier are the parent's: they are done first, unless they never come.
  const bool parent = seating_ && view.parent == seating_->hash();
  const bool waited = now - pending_since_ >= kBarrierPatience;
  const uint64_t barrier = parent && !waited ? view.barrier : 0;
  if (!breaks && !averaging_.MayMove(barrier)) {
    // Witnesses forget the registers of views two epochs old: nobody can finish those rounds.
    const bool forgotten = view.epoch >= last_.epoch + 2 &&
                           OriginOf(view, pending_->hash()) == last_.origin &&
                           !averaging_.MayMove(0);
    if (forgotten) averaging_.LeaveNow(now, out);
    if (!averaging_.MayMove(barrier)) return;
  }
  Seating next = std::move(*pending_);
  pending_.reset();
  if (Wants(next)) Enter(now, std::move(next), out);
}

void Membership::SetPending(Time now, Seating next, Actions& out) {
  pending_ = std::move(next);
  pending_since_ = now;
  if (!seating_) return;
  const bool parent = pending_->view().parent == seating_->hash();
  averaging_.HoldFrom(now, parent ? pending_->view().barrier : averaging_.first_of_new_view(),
                      kBarrierPatience * 2, out);
}

void Membership::Enter(Time now, Seating seating, Actions& out) {
  const View& view = seating.view();
  const bool breaks = seating_ && left_ == view.parent && !left_.none();
  if (seated() && OriginOf(view, seating.hash()) != line().origin && !breaks)
    SendAll(Others(*seating_), message::Leaving{seating_->hash()}, out);
  if (seating_) {
    past_.push_back(seating_->hash());
    if (past_.size() > kMostPast) past_.pop_front();
  }
  if (breaks) {  // the members that stay behind must not count on us, nor on our witness
    metrics_.branches->Add();
    std::vector<PeerId> behind;
    for (const PeerId& peer : Others(*seating_))
      if (!seating.CellOf(peer)) behind.push_back(peer);
    SendAll(behind, message::Leaving{seating_->hash()}, out);
  }
  const ViewHash origin = OriginOf(view, seating.hash());
  if (origin != last_.origin) {
    seat_refused_.clear();
    // Promises made in the old line are forgotten with it, so nothing of it is answered any more.
    Forsake(last_);
    witness_ = SuccessorWitness();
  }
  // The same view again, in another seat: who left it is still gone.
  if (seating.hash() != last_.view) departed_.clear();
  last_ = {.view = seating.hash(), .origin = origin, .epoch = view.epoch};
  line_asked_.clear();
  uint64_t next = view.first_averaging;
  for (const Seat& seat : seating.seats())
    if (seat.member.id == config_.id) next = std::max(next, seat.first_averaging);
  seating_ = std::move(seating);
  left_ = ViewHash();
  following_ = PeerId();
  branch_held_.reset();
  proposer_.reset();
  leader_.reset();
  thin_since_ = Time();
  heard_.clear();
  for (const auto& [cell, member] : seating_->occupants()) heard_[member.id] = now;
  entered_at_ = now;
  follow_until_ = Time();
  const auto seated_here = [&](const auto& entry) {
    return seating_->CellOf(entry.first).has_value();
  };
  std::erase_if(joiners_, seated_here);
  std::erase_if(fetch_told_, seated_here);
  witness_.OnEpoch(seating_->view().epoch);
  if (const auto count = std::exchange(line_count_, std::nullopt)) averaging_.OnLine(*count);
  averaging_.SetDown(down_);
  averaging_.OnView(now, *seating_, next, breaks, out);
  const Member* own = seating_->view().Find(config_.id);
  told_cell_ = own == nullptr ? std::nullopt : std::optional(own->cell);
  TellOwnSeat(now, out);
  metrics_.views->Add();
  metrics_.members->Set(static_cast<double>(seating_->occupants().size()));
  log_.Info("view entered", {{"epoch", seating_->view().epoch},
                             {"hash", seating_->hash().brief()},
                             {"members", seating_->occupants().size()},
                             {"branch", seating_->view().branch}});
  LetStartOnce(out);
  if (seating_->view().target_met) EndJob(now, out);
}

void Membership::EndJob(Time now, Actions& out) {
  if (job_over_) return;
  job_over_ = true;
  SendAll(Others(*seating_), NewsOf(now, *seating_),
          out);  // agents are about to exit: nobody may miss it
  // In this order: the trainer is asked for its opaque state before it is told to stop, or the
  // checkpoint would wait in vain for one that has gone.
  if (is_steward()) out.push_back(WriteCheckpoint{.final_model = true});
  out.push_back(RaiseStop{});
}

void Membership::Unseat(Time now, Actions& out) {
  if (!seating_) return;
  log_.Warning("seat lost", {{"epoch", seating_->view().epoch}});
  if (left_ == seating_->hash()) {  // it was left for good, though no branch came of it
    SendAll(Others(*seating_), message::Leaving{left_}, out);
    Forsake(last_);
  }
  averaging_.OnUnseated(now, out);
  past_.push_back(seating_->hash());
  if (past_.size() > kMostPast) past_.pop_front();
  seating_.reset();
  pending_.reset();
  proposer_.reset();
  leader_.reset();
  left_ = ViewHash();
  follow_until_ = Time();
  joining_.AskSoon();
}

void Membership::SeatsChanged(Time now, Actions& out) {
  if (!seated()) return Unseat(now, out);
  // Whoever sits down again is heard anew: the time of an earlier sitting says nothing.
  std::erase_if(heard_, [&](const auto& h) { return !seating_->CellOf(h.first); });
  for (const auto& [cell, member] : seating_->occupants()) heard_.try_emplace(member.id, now);
  metrics_.members->Set(static_cast<double>(seating_->occupants().size()));
  averaging_.SetDown(down_);
  TellOwnSeat(now, out);
  averaging_.OnSeating(now, *seating_, out);
}

// ---- local events

void Membership::OnConfig(const AveragingConfig& config) {
  if (config.generation <= newest_.generation) return;
  if (MakeStrategy(config.strategy, Rng(0)) == nullptr ||
      (seating_ && seating_->occupants().size() > MostMembersOf(config))) {
    log_.Warning("configuration refused", {{"generation", config.generation}});
    return;
  }
  newest_ = config;
}

void Membership::OnPeerDown(Time now, const PeerId& peer, bool hard, Actions& out) {
  joining_.OnPeerDown(peer);
  if (!hard) return;
  down_.insert(peer);
  joiners_.erase(peer);
  fetch_told_.erase(peer);
  averaging_.SetDown(down_);
  if (leader_) leader_->OnPeerDown(now, peer, out);
}

void Membership::OnHeard(Time now, const PeerId& peer) {
  if (Gone(now, peer)) return;
  const auto at = heard_.find(peer);
  if (at != heard_.end() && !InAnotherLine(peer)) at->second = now;
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
  if (leaving_since_) {
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
  TakePending(now, out);
  averaging_.SetEnd(newest_.target.seconds ? clock_.When(*newest_.target.seconds)
                                           : Time::Infinite());
  if (seated()) {
    Govern(now, out);
    TakePending(now, out);
    SeekBetterLine(now, out);
  } else {
    SeekSeat(now, out);
  }
}

Time Membership::NextDeadline() const {
  if (left_job_) return Time::Infinite();
  if (leaving_since_) return *leaving_since_ + kLeavePatience;
  Time next = Time::Infinite();
  // What was due already and could not be done waits for the next input, not for the clock.
  const auto consider = [&](Time at) {
    if (at > settled_at_) next = std::min(next, at);
  };
  if (pending_) consider(pending_since_ + kBarrierPatience);
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
