// Entering views and leaving them, and which view supersedes which (membership.h).
#include <algorithm>
#include <utility>

#include "worker/core/averaging/averaging.h"
#include "worker/core/membership/membership.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {

bool Membership::Forsaken(const ViewHash& view) const {
  return std::any_of(forsaken_.begin(), forsaken_.end(),
                     [&](const Entered& left) { return left.view == view; });
}

// From an ancestor of a forsaken view a member could not go on: the way leads through that view.
bool Membership::Forsaken(const View& view, const ViewHash& hash) const {
  const ViewHash origin = OriginOf(view, hash);
  return std::any_of(forsaken_.begin(), forsaken_.end(), [&](const Entered& left) {
    return left.view == hash || (left.origin == origin && view.epoch <= left.epoch);
  });
}

bool Membership::HasLeft(const ViewHash& view) const {
  return Forsaken(view) || std::find(past_.begin(), past_.end(), view) != past_.end();
}

void Membership::Forsake(const Entered& view) {
  if (view.view.none() || Forsaken(view.view)) return;
  forsaken_.push_back(view);
  if (forsaken_.size() > kMaxPast) forsaken_.pop_front();
}

bool Membership::IsOwnBranch(const View& view) const {
  return seated() && view.branch && view.parent == seating_->hash();
}

// A branch breaks up the rounds of its parent: their missing members cannot be asked. The orderly
// successor does so only where a round has become a branch, too. Any other round ends as always:
// the others may have counted what this peer gave to it.
bool Membership::BreaksUpFor(const View& view) const {
  if (left_.none() || left_ != view.parent) return false;
  return view.branch || averaging_.rounds().in_branch();
}

// Does this view, if it is decided, supersede ours?
bool Membership::Wants(const Seating& next) const {
  const bool included = next.CellOf(config_.id).has_value();
  const View& view = next.view();
  if (!seated()) {
    const bool older = OriginOf(view, next.hash()) == last_.origin && view.epoch < last_.epoch;
    return included && !older;
  }
  if (IsOwnBranch(view)) return included && left_ == view.parent;
  const ViewHash theirs = OriginOf(view, next.hash());
  if (theirs == lineage().origin) return included && view.epoch > seating_->view().epoch;
  return included && OtherLineages().Of(theirs).Beats(RankHere());
}

void Membership::TakePending(Time now, Actions& out) {
  if (!pending_) return;
  const View& view = pending_->view();
  const bool breaks = BreaksUpFor(view);
  // Averagings below the barrier are the parent's: they are done first, unless they never come.
  const bool parent = seating_ && view.parent == seating_->hash();
  const bool waited = now - pending_since_ >= kBarrierPatience;
  const AveragingId barrier = parent && !waited ? view.barrier : AveragingId();
  // From the barrier on they are the successor's, whose witnesses may be needed there.
  if (parent) averaging_.Yield(now, view.barrier, out);
  if (!breaks && !averaging_.MayMove(barrier)) {
    // Witnesses forget the registers of views two epochs old: nobody can finish those rounds.
    const bool forgotten = view.epoch >= last_.epoch + 2 &&
                           OriginOf(view, pending_->hash()) == last_.origin &&
                           !averaging_.MayMove(AveragingId());
    // Nor without a quorum of them, once a member is missing in such a round.
    const bool undecidable = parent && averaging_.rounds().in_ballot() && !WitnessesLive();
    if (forgotten || undecidable) averaging_.LeaveNow(now, out);
    // A round that nobody else is in lasts longer than one hold, and the next one would begin in
    // the moment in which it is over.
    if (waited) averaging_.HoldFrom(now, averaging_.bytes_begun() + 1, kBarrierPatience * 2, out);
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
  const bool breaks = BreaksUpFor(view);
  if (seated() && OriginOf(view, seating.hash()) != lineage().origin && !breaks)
    SendAll(Others(*seating_), message::Leaving{seating_->hash()}, out);
  if (seating_) {
    past_.push_back(seating_->hash());
    if (past_.size() > kMaxPast) past_.pop_front();
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
    seat_refused_.reset();
    // Promises made in the old lineage are forgotten with it, so nothing of it is answered any
    // more.
    Forsake(last_);
    witness_ = SuccessorWitness(config_.job);
    // One that asked, or was sent, for first parameters of the old lineage asks again.
    if (!highest_first_.is_zero()) {
      fetch_told_.clear();
      if (view.members.size() > 1) joiners_.clear();
    }
  }
  ForgetDoubts(seating);
  last_ = {.view = seating.hash(), .origin = origin, .epoch = view.epoch};
  lineage_asked_.clear();
  AveragingId next = view.first_averaging;
  for (const Seat& seat : seating.seats())
    if (seat.member.id == config_.id) next = std::max(next, seat.first_averaging);
  seating_ = std::move(seating);
  rumors_.Clear();
  left_ = ViewHash();
  following_ = PeerId();
  branches_held_.clear();
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
  if (const auto count = std::exchange(lineage_count_, std::nullopt)) averaging_.OnLineage(*count);
  averaging_.SetDown(down_);
  averaging_.OnView(now, *seating_, next, breaks ? ParentEnd::kBrokeUp : ParentEnd::kOrderly, out);
  giving_first_ = giving_first_ && averaging_.gives_first();
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

// Whoever made the view has heard its members, perhaps in another lineage. This peer, which took
// some for gone, has not listened there yet.
void Membership::ForgetDoubts(const Seating& entered) {
  // The same view again, in another seat: who left it is still gone.
  if (entered.hash() != last_.view) departed_.clear();
  std::erase_if(doubted_, [&](const PeerId& peer) {
    return entered.CellOf(peer).has_value() && down_.erase(peer) > 0;
  });
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
  if (past_.size() > kMaxPast) past_.pop_front();
  seating_.reset();
  rumors_.Clear();
  pending_.reset();
  proposer_.reset();
  leader_.reset();
  left_ = ViewHash();
  branches_held_.clear();
  follow_until_ = Time();
  giving_first_ = false;
  if (holds_first_ && !Trained()) holds_ = AveragingId();
  joining_.AskSoon();
}

void Membership::SeatsChanged(Time now, Actions& out) {
  if (!seated()) return Unseat(now, out);
  // A member that sits down again is heard anew: the time of an earlier sitting says nothing.
  std::erase_if(heard_, [&](const auto& h) { return !seating_->CellOf(h.first); });
  for (const auto& [cell, member] : seating_->occupants()) heard_.try_emplace(member.id, now);
  metrics_.members->Set(static_cast<double>(seating_->occupants().size()));
  averaging_.SetDown(down_);
  TellOwnSeat(now, out);
  averaging_.OnSeating(now, *seating_, out);
}

}  // namespace crowdsurf::worker
