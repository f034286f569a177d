// What the steward of a view does (membership.h): vacancies, seats, successors, branches.
#include <algorithm>

#include "base/check.h"
#include "worker/core/averaging/averaging.h"
#include "worker/core/membership/membership.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

// A joiner that stopped asking is gone; newcomers ask at least once a second.
constexpr Duration kJoinerPatience = Seconds(5);
// How long after a view the next one waits for members that are in a round of the parent yet. Twice
// as long, and a newcomer waits as long as for a whole transfer; half, and a round that goes
// through a few ballots is not over.
constexpr Duration kFollowPatience = Seconds(1);

bool Lives(const PeerId& witness, const Seating& seating, const std::set<PeerId>& down) {
  return !down.contains(witness) && !seating.Vacated(witness);
}

}  // namespace

// Its own record says that it leaves the job, or that it is seated in another lineage than ours. It
// may be in its last round: it says Leaving when that is over. And records are late: one that took
// a seat here a moment ago still has the other lineage in its record.
bool Membership::LeavesByItsRecord(const PeerId& peer) const {
  const RosterRecord* record = roster_.Find(peer);
  if (record == nullptr || !seating_) return false;
  return record->leaving || (record->seated && record->lineage.origin != lineage().origin);
}

// It has not spoken as a member of this view for the roster's time to live.
bool Membership::Silent(Time now, const PeerId& peer) const {
  const auto heard = heard_.find(peer);
  return heard != heard_.end() && now - heard->second > roster_.Ttl();
}

// Whatever it says otherwise, it is no member of our view any more.
bool Membership::Gone(Time now, const PeerId& peer) const {
  return departed_.contains(peer) || (Silent(now, peer) && LeavesByItsRecord(peer));
}

// Occupants that are silent, and have no record or one that says they leave or are elsewhere: the
// slow proof of death, or of having gone.
void Membership::FindSilent(Time now) {
  // Every input comes here, and nearly always nobody has gone or is silent.
  const auto silent = [&, ttl = roster_.Ttl()](const auto& heard) {
    return now - heard.second > ttl && heard.first != config_.id;
  };
  if (departed_.empty() && std::none_of(heard_.begin(), heard_.end(), silent)) return;
  bool found = false;
  for (const auto& [cell, member] : seating_->occupants()) {
    if (member.id == config_.id || down_.contains(member.id)) continue;
    const bool lost = Silent(now, member.id) && roster_.Find(member.id) == nullptr;
    if (lost || Gone(now, member.id)) {
      log_.Info("peer silent", {{"peer", member.id.brief()}});
      found |= down_.insert(member.id).second;
      doubted_.insert(member.id);
    }
  }
  if (found) averaging_.SetDown(down_);
}

void Membership::Govern(Time now, Actions& out) {
  follow_until_ = Time();  // set below, by a steward that waits
  FindSilent(now);
  if (leader_) {
    leader_->OnTimer(now, out);
    if (leader_->decided()) {
      const View view = leader_->view();
      // Nobody came along: those that it asked may have gone where the job lives on.
      if (view.members.size() == 1 && LivesElsewhere()) return Unseat(now, out);
      return Announce(now, view, out);
    }
    return;
  }
  if (!is_steward() || job_over_) {
    proposer_.reset();
    return;
  }
  if (averaging_.gives_first()) return;  // nobody is seated before
  if (!WitnessesLive()) return MaybeBranch(now, out);
  if (!left_.none()) return;  // following a branch that another leads
  std::erase_if(joiners_, [&](const auto& j) { return now - j.second.heard > kJoinerPatience; });
  if (Vacate(now, out)) SeatsChanged(now, out);
  if (!StrictView() && !SuccessorProposed()) SeatJoiners(now, out);
  if (proposer_) {
    proposer_->OnTimer(now, out);
    if (proposer_->decided()) {
      const View view = *proposer_->decided();
      proposer_.reset();
      Announce(now, view, out);
    }
    return;
  }
  if (pending_ || !NeedsView(now)) return;
  if (SomebodyFollows(now)) {
    follow_until_ = entered_at_ + kFollowPatience;
    return;
  }
  // What is under way is finished first, and nothing new begins before it.
  averaging_.HoldFrom(now, averaging_.bytes_begun() + 1, kProposalPatience, out);
  if (averaging_.MayMove(AveragingId())) Propose(now, out);
}

// A member whose record names the parent is in a round of it: with one more view between, witnesses
// forget that round's register, and it is given up. Records may be lost, so this is bounded.
bool Membership::SomebodyFollows(Time now) const {
  const ViewHash& parent = seating_->view().parent;
  if (parent.none() || now - entered_at_ >= kFollowPatience) return false;
  for (const auto& [cell, member] : seating_->occupants()) {
    if (member.id == config_.id || down_.contains(member.id)) continue;
    const RosterRecord* record = roster_.Find(member.id);
    if (record != nullptr && record->view == parent) return true;
  }
  return false;
}

// Strategies on graphs derive who is whose neighbour from the view's members: it is made anew at
// every change, and gives no seats.
bool Membership::StrictView() const { return NeedsOf(seating_->view().config).strict_view; }

// Of units and of changes all measure from an average of their view. Who comes with an older one
// than the last two took longer to fetch it than the members need for the next, so it would never
// have theirs. The first average of the next view is one of whole values, and all measure from
// that.
bool Membership::ComesWithView(const message::JoinRequest& request) const {
  const View& view = seating_->view();
  const bool measures =
      view.config.strategy == StrategyKind::kIst || view.config.compression == WireFormat::kInt8;
  const AveragingId job = averaging_.job().averaging;
  return measures && job >= view.first_averaging && request.holds + 1 < job;
}

// A view that was composed before a seat was given has no place for the peer that takes it. Of one
// that a dead steward proposed this witness knows nothing more than that: it may be decided.
bool Membership::SuccessorProposed() const {
  return proposer_ || pending_ || witness_.Promised(seating_->hash());
}

bool Membership::Vacate(Time, Actions& out) {
  std::vector<Vacancy> vacancies;
  const AveragingId from = averaging_.first_unheard_of();
  for (const auto& [cell, member] : seating_->occupants())
    if (down_.contains(member.id))
      vacancies.push_back({member.id, seating_->SittingOf(member.id), from});
  if (vacancies.empty() || !seating_->Merge({}, vacancies)) return false;
  for (const Vacancy& vacancy : vacancies) {
    metrics_.vacancies->Add();
    log_.Info("cell vacated", {{"peer", vacancy.peer.brief()}});
  }
  std::vector<PeerId> tell = Others(*seating_);
  for (const Vacancy& vacancy : vacancies) tell.push_back(vacancy.peer);  // in case it lives
  SendAll(tell, message::SeatingNews{seating_->hash(), {}, vacancies, {}, seating_->MinorHash()},
          out);
  return true;
}

void Membership::SeatJoiners(Time now, Actions& out) {
  std::vector<Seat> seats;
  std::vector<PeerId> seated_now;
  const Member* self = seating_->Find(config_.id);
  CHECK(self != nullptr);
  const int64_t joined = self->joined_unix_ms;
  for (const auto& [peer, joiner] : joiners_) {
    const auto cell = seating_->FreeCell();
    if (!cell) break;
    // Who has left this view never comes back into it: it waits for the next one.
    if (departed_.contains(peer) || ComesWithView(joiner.request)) continue;
    if (down_.contains(peer) || seating_->seats().size() >= kMaxSeats / 2) continue;
    Seat seat{.member = joiner.request.member,
              .steward = config_.id,
              .steward_joined_ms = joined,
              .sitting = seating_->NextSitting(peer),
              .first_averaging = std::max(averaging_.first_unheard_of(), joiner.request.next)};
    seat.member.cell = *cell;
    if (!seating_->Add(seat)) continue;
    seats.push_back(seat);
    seated_now.push_back(peer);
    metrics_.seats->Add();
    log_.Info("seat given", {{"peer", peer.brief()}, {"cell", *cell}});
  }
  if (seats.empty()) return;
  for (const PeerId& peer : seated_now) {
    joiners_.erase(peer);
    fetch_told_.erase(peer);
  }
  SendAll(Others(*seating_),
          message::SeatingNews{
              seating_->hash(), seats, {}, roster_.ContactsOf(seated_now), seating_->MinorHash()},
          out);
  SendAll(seated_now, NewsOf(now, *seating_), out);
  SeatsChanged(now, out);
}

bool Membership::TargetMet(Time now) const {
  const Target& target = newest_.target;
  const Progress& progress = averaging_.progress();
  if (target.samples && averaging_.job().job_samples >= *target.samples) return true;
  if (target.steps && progress.step >= *target.steps) return true;
  if (target.seconds && clock_.seconds(now) >= *target.seconds) return true;
  if (!target.metric) return false;
  const auto at = progress.metrics.find(*target.metric);
  if (at == progress.metrics.end()) return false;
  return target.metric_below ? at->second < target.metric_bound : at->second > target.metric_bound;
}

bool Membership::NeedsView(Time now) {
  const View& view = seating_->view();
  if (ConfigOfNext().generation > view.config.generation) return true;
  if (TargetMet(now) && !view.target_met) return true;
  if (SeatsDiffer(now)) return true;
  if (witness_.Promised(seating_->hash())) return true;
  const bool differs = seating_->occupants().size() != view.members.size();
  const bool thin = IsThin(*seating_, down_) || (StrictView() && differs);
  if (!thin) thin_since_ = Time();
  if (thin && thin_since_.unset()) thin_since_ = now;
  if (thin && now - thin_since_ >= config_.view_debounce) return true;
  // Newcomers that come together share a view; those that came to a view of one waited already.
  const Duration debounce =
      view.members.size() == 1 && view.epoch == 1 ? Duration() : config_.view_debounce;
  return std::any_of(joiners_.begin(), joiners_.end(), [&](const auto& entry) {
    return !down_.contains(entry.first) && now - entry.second.since >= debounce;
  });
}

void Membership::Propose(Time now, Actions& out) {
  const auto& witnesses = seating_->view().witnesses;
  if (std::find(witnesses.begin(), witnesses.end(), config_.id) == witnesses.end()) return;
  ViewFacts facts = Facts();
  facts.target_met = TargetMet(now);
  std::vector<Member> newcomers;
  for (const auto& [peer, joiner] : joiners_) {
    newcomers.push_back(joiner.request.member);
    facts.first_averaging = std::max(facts.first_averaging, joiner.request.next);
  }
  proposer_.emplace(config_.id, *seating_, NextView(*seating_, down_, newcomers, facts),
                    LiveWitnesses(), rng_.Fork("proposer"));
  // The own witness is asked without a message.
  proposer_->local = &witness_;
  proposer_->local_begun = averaging_.bytes_begun();
  proposer_->Start(now, out);
  if (!proposer_->decided()) return;
  const View view = *proposer_->decided();
  proposer_.reset();
  Announce(now, view, out);
}

// A decided view: to everybody of the old one and of the new one.
void Membership::Announce(Time now, View view, Actions& out) {
  const ViewHash hash = HashOf(view, config_.job);
  Seating next(std::move(view), hash);
  std::set<PeerId> tell;
  for (const PeerId& peer : Others(*seating_)) tell.insert(peer);
  for (const PeerId& peer : Others(next)) tell.insert(peer);
  SendAll({tell.begin(), tell.end()}, NewsOf(now, next), out);
  SetPending(now, std::move(next), out);
  TakePending(now, out);
}

// ---- the witnesses' quorum

std::set<PeerId> Membership::LiveWitnesses() const {
  std::set<PeerId> live;
  for (const PeerId& witness : seating_->view().witnesses)
    if (Lives(witness, *seating_, down_)) live.insert(witness);
  return live;
}

bool Membership::WitnessesLive() const {
  const std::vector<PeerId>& witnesses = seating_->view().witnesses;
  // A steward asks this at every input, and nearly always all live: no set of them is made then.
  const auto lives = [&](const PeerId& witness) { return Lives(witness, *seating_, down_); };
  const bool all = !witnesses.empty() && std::all_of(witnesses.begin(), witnesses.end(), lives);
  return all || IsQuorum(witnesses, LiveWitnesses());
}

// By its record a member of this view sits in another lineage: the job goes on there.
bool Membership::LivesElsewhere() const {
  const auto elsewhere = [&](const PeerId& peer) {
    const RosterRecord* record = roster_.Find(peer);
    return record != nullptr && record->seated && !record->leaving &&
           record->lineage.origin != lineage().origin;
  };
  const auto& members = seating_->view().members;
  const auto& occupants = seating_->occupants();
  return std::any_of(members.begin(), members.end(),
                     [&](const Member& member) { return elsewhere(member.id); }) ||
         std::any_of(occupants.begin(), occupants.end(),
                     [&](const auto& entry) { return elsewhere(entry.second.id); });
}

// Every missing witness is known dead: by a refused connection, or by the roster's time to live.
void Membership::MaybeBranch(Time now, Actions& out) {
  if (!following_.none() && following_ != config_.id && !down_.contains(following_)) return;
  std::set<PeerId> live;
  for (const PeerId& peer : Others(*seating_))
    if (!down_.contains(peer)) live.insert(peer);
  // A branch of one would train and commit again what the others do. It asks them for a seat.
  if (live.empty() && LivesElsewhere()) return Unseat(now, out);
  metrics_.witness_quorum_lost->Add();
  log_.Warning("witness quorum lost", {{"epoch", seating_->view().epoch}});
  proposer_.reset();
  left_ = seating_->hash();
  left_since_ = now;
  following_ = config_.id;
  leader_.emplace(config_.id, *seating_, std::move(live), Facts(), config_.max_silence);
  leader_->Start(now, out);
  if (!leader_->decided()) return;
  const View view = leader_->view();
  Announce(now, view, out);
}

}  // namespace crowdsurf::worker
