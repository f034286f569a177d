// Views that others name, until enough of them do (membership.h, confirmation.h).
#include <algorithm>
#include <utility>

#include "worker/core/averaging/averaging.h"
#include "worker/core/membership/membership.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {

std::deque<Membership::Hint>::iterator Membership::FindHint(const ViewHash& view) {
  return std::find_if(hints_.begin(), hints_.end(),
                      [&](const Hint& hint) { return hint.next.hash() == view; });
}

// A view of our lineage that is later and has no place for us.
bool Membership::GoesOnWithout(const Seating& next) const {
  return seated() && OriginOf(next.view(), next.hash()) == lineage().origin &&
         next.view().epoch > seating_->view().epoch && !next.CellOf(config_.id);
}

// Nobody else would lose anything by what this peer does.
bool Membership::IsNewcomer() const { return !seated() || seating_->occupants().size() == 1; }

Confirmation Membership::AskWitnesses(const Seating& next) const {
  const bool same_lineage = seated() && OriginOf(next.view(), next.hash()) == lineage().origin;
  if (!same_lineage) return AskMembers(next);
  return {Confirmation::Rule::kQuorum, seating_->hash(), next.hash(), seating_->view().witnesses};
}

Confirmation Membership::AskMembers(const Seating& next) const {
  using Rule = Confirmation::Rule;
  const bool other_lineage = !seated() || OriginOf(next.view(), next.hash()) != lineage().origin;
  // The end of the job is not for newcomers to say.
  const bool ends = next.view().target_met;
  const bool alone = !ends && IsNewcomer();
  const PeerId chief = alone || other_lineage ? PeerId() : steward().value_or(PeerId());
  return {alone ? Rule::kNewcomer : Rule::kTwoMembers, seating_ ? seating_->hash() : ViewHash(),
          next.hash(), Others(next), chief};
}

// Members that live in the present view, without this peer.
size_t Membership::LiveOthers() const {
  const auto& occupants = seating_->occupants();
  return static_cast<size_t>(
      std::count_if(occupants.begin(), occupants.end(), [&](const auto& entry) {
        return entry.second.id != config_.id && !down_.contains(entry.second.id);
      }));
}

// Whose word on a view counts where no quorum gives its own. Whoever names a view also writes the
// names in it, so the voter must sit in a view that is known here. That is the one held. Of another
// lineage it is the one in the voter's record, and from there nobody ends the job for a member.
Confirmation::Company Membership::CompanyFor(const Hint& hint) const {
  Confirmation::Company company{.down = down_};
  const View& view = hint.next.view();
  const ViewHash origin = OriginOf(view, hint.next.hash());
  if (hint.confirmation.rule() == Confirmation::Rule::kNewcomer) {
    const auto& voters = hint.confirmation.voters();
    const auto live = std::count_if(voters.begin(), voters.end(),
                                    [&](const PeerId& voter) { return !down_.contains(voter); });
    company.least = live <= 1 ? 1 : 2;
  } else if (IsNewcomer()) {  // and the view ends the job
    const auto seated = [&](const auto& entry) { return entry.second.seated; };
    const auto& records = roster_.live();
    company.least = std::count_if(records.begin(), records.end(), seated) <= 1 ? 1 : 2;
    company.counts = [this](const PeerId& voter) {
      const RosterRecord* record = roster_.Find(voter);
      return (record != nullptr && record->seated) || (seating_ && Concerns(*seating_, voter));
    };
  } else if (origin == lineage().origin) {
    company.least = LiveOthers() <= 1 ? 1 : 2;
    company.counts = [this](const PeerId& voter) { return Concerns(*seating_, voter); };
  } else {
    company.counts = [this, origin, ends = view.target_met](const PeerId& voter) {
      const RosterRecord* record = roster_.Find(voter);
      return !ends && record != nullptr && record->seated && record->lineage.origin == origin;
    };
  }
  return company;
}

// Another id of its key is the peer now: two ids of one key are one voice.
void Membership::Withdraw(const PeerId& peer) {
  for (Hint& hint : hints_) {
    hint.tellers.erase(peer);
    hint.confirmation.Withdraw(peer);
  }
  std::erase_if(hints_, [](const Hint& hint) { return hint.tellers.empty(); });
  rumors_.Withdraw(peer);
}

// What this peer knows of `named`: to a member of `held`.
message::ViewVote Membership::VoteOn(const ViewHash& held, const ViewHash& named) const {
  const bool entered = (seating_ && seating_->hash() == named) ||
                       std::find(past_.begin(), past_.end(), named) != past_.end();
  if (entered || (pending_ && pending_->hash() == named))
    return {named, message::ViewVote::Kind::kDecided, 0};
  if (const auto accepted = witness_.Accepted(held); accepted && accepted->view == named)
    return {named, message::ViewVote::Kind::kAccepted, accepted->ballot};
  const bool told = std::any_of(hints_.begin(), hints_.end(), [&](const Hint& hint) {
    return hint.next.hash() == named && IsNewcomer();
  });
  return {named, told ? message::ViewVote::Kind::kHeld : message::ViewVote::Kind::kUnknown, 0};
}

void Membership::OnViewVoteAsk(Time, const PeerId& from, const message::ViewVoteAsk& ask,
                               Actions& out) {
  SendAll({from}, VoteOn(ask.held, ask.named), out);
}

void Membership::OnViewVote(Time now, const PeerId& from, const message::ViewVote& vote,
                            Actions& out) {
  const auto at = FindHint(vote.named);
  if (at == hints_.end()) return;
  at->confirmation.OnVote(from, vote);
  JudgeHints(now, out);
}

// One hint a sender, so that nobody displaces what others say.
void Membership::Suppose(Time now, const PeerId& from, Seating next, const Committed& committed,
                         Actions& out) {
  const ViewHash hash = next.hash();
  auto at = FindHint(hash);
  if (at == hints_.end()) {
    std::erase_if(hints_, [&](const Hint& hint) {
      return hint.tellers.size() == 1 && hint.tellers.contains(from);
    });
    if (hints_.size() >= kMaxHints) {
      hints_.pop_front();
      metrics_.RefuseMessage(MessageRefusal::kTooManyViews);
    }
    Confirmation confirmation = AskWitnesses(next);
    hints_.push_back({.next = std::move(next),
                      .held = seating_ ? seating_->hash() : ViewHash(),
                      .committed = committed,
                      .tellers = {from},
                      .confirmation = std::move(confirmation)});
    at = std::prev(hints_.end());
  } else {
    at->next.Merge({next.seats().begin(), next.seats().end()},
                   {next.vacancies().begin(), next.vacancies().end()});
    if (at->tellers.size() < kMaxHints) at->tellers.insert(from);
    if (committed.averaging > at->committed.averaging) at->committed = committed;
  }
  at->confirmation.OnVote(from, {hash, message::ViewVote::Kind::kDecided, 0});
  if (seating_) at->confirmation.OnVote(config_.id, VoteOn(seating_->hash(), hash));
  JudgeHints(now, out);
}

// It was entered, left behind or forsaken meanwhile, or is not for us any more.
bool Membership::IsStale(const Seating& next) const {
  if (Forsaken(next.view(), next.hash())) return true;
  if (pending_ && pending_->hash() == next.hash()) return true;
  if (seating_ && seating_->hash() == next.hash()) return true;
  return !GoesOnWithout(next) && !Wants(next);
}

void Membership::JudgeHints(Time now, Actions& out) {
  std::erase_if(hints_, [&](const Hint& hint) { return IsStale(hint.next); });
  for (Hint& hint : hints_) {
    if (hint.held == (seating_ ? seating_->hash() : ViewHash())) continue;
    Renew(hint, AskWitnesses(hint.next));  // others are to be asked now
  }
  // One at a time: what is done for it may make others stale.
  for (Hint& hint : hints_) {
    auto verdict = hint.confirmation.Judge(now, CompanyFor(hint));
    const bool quorum = hint.confirmation.rule() == Confirmation::Rule::kQuorum;
    if (verdict == Confirmation::Verdict::kSilent && quorum) {
      metrics_.RefuseMessage(MessageRefusal::kViewNoQuorum);
      Renew(hint, AskMembers(hint.next));
      verdict = hint.confirmation.Judge(now, CompanyFor(hint));
    }
    if (verdict == Confirmation::Verdict::kOpen) {
      hint.confirmation.OnTimer(now, config_.id, CompanyFor(hint), out);
      continue;
    }
    Hint judged = hint;
    hints_.erase(FindHint(judged.next.hash()));
    if (verdict == Confirmation::Verdict::kConfirmed)
      Follow(now, std::move(judged.next), judged.committed, out);
    else
      metrics_.RefuseMessage(MessageRefusal::kViewUnconfirmed);
    return;
  }
}

void Membership::Renew(Hint& hint, Confirmation confirmation) {
  hint.held = seating_ ? seating_->hash() : ViewHash();
  hint.confirmation = std::move(confirmation);
  for (const PeerId& teller : hint.tellers)
    hint.confirmation.OnVote(teller, {hint.next.hash(), message::ViewVote::Kind::kDecided, 0});
  if (seating_) hint.confirmation.OnVote(config_.id, VoteOn(seating_->hash(), hint.next.hash()));
}

// Acts on a view that others know.
void Membership::Follow(Time now, Seating next, const Committed& committed, Actions& out) {
  if (GoesOnWithout(next)) return Unseat(now, out);  // ask for a seat
  if (!Wants(next)) return;
  if (!seated() && (!trainer_ || fetching_)) return;
  // A branch of the own view begins with what its members know: the latest counts.
  const bool own_branch = seated() && next.view().parent == seating_->hash();
  const bool other_lineage =
      !own_branch && !last_.view.none() && OriginOf(next.view(), next.hash()) != last_.origin;
  lineage_count_.reset();
  if (other_lineage)
    lineage_count_ = committed;
  else
    averaging_.Learn(committed);
  SetPending(now, std::move(next), out);
}

}  // namespace crowdsurf::worker
