// What peers say to each other about views, seats and branches (membership.h).
#include <algorithm>

#include "worker/core/averaging/averaging.h"
#include "worker/core/membership/membership.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kMaxDonors = 8;  // more in parallel would not fill a newcomer's link faster

}  // namespace

// Why a request gets no seat now; nullopt: it gets one.
std::optional<message::JoinAnswer> Membership::Objection(
    const message::JoinRequest& request) const {
  using message::JoinAnswer;
  if (trainer_ && request.schema != trainer_->schema)
    return JoinAnswer{
        JoinAnswer::Kind::kRefused, {}, {}, std::string(kAnotherTable), trainer_->marks};
  if (request.lineage) {
    // Whoever asks may see less of its own lineage than is seen here, or say so.
    LineageRank theirs = OtherLineages().Of(request.lineage->origin);
    theirs.members = std::max(theirs.members, request.lineage->members);
    if (!RankHere().Beats(theirs))
      return JoinAnswer{
          JoinAnswer::Kind::kRefused, {}, {}, "its lineage does not lose against this one"};
  }
  const size_t waiting = joiners_.size() - joiners_.count(request.member.id);
  if (seating_->occupants().size() + waiting >= MaxMembersOf(newest_))
    return JoinAnswer{JoinAnswer::Kind::kRefused, {}, {}, "the strategy takes no more members"};
  if (job_over_) return JoinAnswer{JoinAnswer::Kind::kRefused, {}, {}, "the job is over"};
  if (!left_.none()) return JoinAnswer{JoinAnswer::Kind::kWait, {}, {}, {}};
  // It takes the state as a member: the others wait for its share, so the state stays.
  if (AveragesGradients(newest_)) return std::nullopt;
  const Committed& job = averaging_.job();
  // What was the last average when the transfer began is near enough, however many the job has made
  // meanwhile: where they are quicker than a transfer, a second one would come as late. Who has
  // fetched an average is trained, also from there.
  // Of first parameters the number says nothing: they may be those of another lineage.
  const bool counts = request.holds > highest_first_;
  const bool near = (counts && request.holds + 1 >= averaging_.near_enough()) ||
                    (!request.holds.is_zero() && FetchedAsTold(request));
  const bool ahead = (counts || highest_first_.is_zero()) && request.holds >= job.averaging;
  if (job.averaging.is_zero() || request.trained || near || ahead) return std::nullopt;
  JoinAnswer answer{JoinAnswer::Kind::kFetchFirst, averaging_.committed(), {}, {}};
  // Nothing to be fetched: the newcomer's first average takes its place.
  if (averaging_.values_differ() && answer.committed.averaging.is_zero()) return std::nullopt;
  if (answer.committed.averaging.is_zero() || answer.committed.root.none())
    return JoinAnswer{JoinAnswer::Kind::kWait, {}, {}, {}};  // being hashed: ask again
  std::vector<PeerId> donors{config_.id};
  for (const auto& [cell, member] : seating_->occupants()) {
    const RosterRecord* record = roster_.Find(member.id);
    if (donors.size() < kMaxDonors && record != nullptr && !down_.contains(member.id) &&
        record->committed.root == answer.committed.root)
      donors.push_back(member.id);
  }
  answer.contacts = roster_.ContactsOf(donors);
  return answer;
}

void Membership::NoteFetch(const PeerId& peer, AveragingId averaging) {
  if (fetch_told_.size() >= kMaxJoiners && !fetch_told_.contains(peer)) {
    fetch_told_.clear();  // the worst of it: some are sent to fetch a second time
    metrics_.RefuseMessage(MessageRefusal::kTooManyFetches);
  }
  fetch_told_[peer] = averaging;
}

bool Membership::FetchedAsTold(const message::JoinRequest& request) const {
  const auto told = fetch_told_.find(request.member.id);
  return told != fetch_told_.end() && request.holds >= told->second;
}

void Membership::OnJoinRequest(Time now, const PeerId& from, const message::JoinRequest& request,
                               Actions& out) {
  if (request.member.id != from || request.contact.id != from)
    return metrics_.RefuseMessage(MessageRefusal::kJoinForAnother);
  roster_.Learn(request.contact, out);
  const auto note = [&] {
    if (joiners_.size() >= kMaxJoiners && !joiners_.contains(from))
      return metrics_.RefuseMessage(MessageRefusal::kTooManyJoiners);
    auto [at, fresh] = joiners_.try_emplace(from, Joiner{request, now, now});
    at->second.request = request;
    at->second.heard = now;
  };
  using message::JoinAnswer;
  if (!seated() || leaving_since_) {
    if (down_.erase(from) > 0) averaging_.SetDown(down_);
    note();
    return SendAll({from}, JoinAnswer{JoinAnswer::Kind::kNoView, {}, {}, {}}, out);
  }
  const bool sits = seating_->CellOf(from).has_value();
  if (sits && !departed_.contains(from)) return SendAll({from}, NewsOf(now, *seating_), out);
  if (!sits && down_.erase(from) > 0) averaging_.SetDown(down_);
  const auto chief = steward();
  if (chief && *chief != config_.id)
    return SendAll({from},
                   JoinAnswer{JoinAnswer::Kind::kAskSteward, {}, roster_.ContactsOf({*chief}), {}},
                   out);
  // Who has left this view waits until its cell is vacated and the next view made. Nobody but the
  // steward says so: it may be the one that does not know yet.
  if (sits) return SendAll({from}, JoinAnswer{JoinAnswer::Kind::kWait, {}, {}, {}}, out);
  const auto objection = Objection(request);
  const bool refused = objection && objection->kind == JoinAnswer::Kind::kRefused;
  if (averaging_.gives_first() && !refused) {  // all are told when they can be fetched
    note();
    return SendAll({from}, JoinAnswer{JoinAnswer::Kind::kWait, {}, {}, {}}, out);
  }
  if (objection) {
    if (objection->kind == JoinAnswer::Kind::kFetchFirst)
      NoteFetch(from, objection->committed.averaging);
    if (objection->kind == JoinAnswer::Kind::kWait && !waiting_.Add(now, request))
      metrics_.RefuseMessage(MessageRefusal::kTooManyJoiners);
    return SendAll({from}, *objection, out);
  }
  note();
  Govern(now, out);
  if (joiners_.contains(from))
    SendAll({from}, JoinAnswer{JoinAnswer::Kind::kWait, {}, {}, {}}, out);
}

// There was nothing to fetch when they asked.
void Membership::AnswerWaiting(Time now, Actions& out) {
  if (waiting_.empty() || averaging_.committed().root.none()) return;
  for (const message::JoinRequest& request : waiting_.Take(now))
    if (!down_.contains(request.member.id)) OnJoinRequest(now, request.member.id, request, out);
}

// The one entrance of views from others.
std::optional<View> Membership::Take(const Bytes& encoded) {
  ViewFlaw flaw;
  auto view = DecodeView(encoded, &flaw);
  if (!view) metrics_.RefuseView(flaw);
  return view;
}

void Membership::OnViewNews(Time now, const PeerId& from, const message::ViewNews& news,
                            Actions& out) {
  auto view = Take(news.view);
  if (!view) return;
  const ViewHash hash = HashOf(*view, config_.job);
  for (const Contact& contact : news.contacts) roster_.Learn(contact, out);
  clock_.Learn(now, news.job_seconds);
  if (seating_ && hash == seating_->hash()) {
    if (TakeSeats(now, from, news.seats, news.vacancies, out)) SeatsChanged(now, out);
    // News of a view carry all seats that the sender knows: it is told of more.
    if (seated() && (news.seats.size() < seating_->seats().size() ||
                     news.vacancies.size() < seating_->vacancies().size()))
      TellSeats(now, from, out);
    return;
  }
  if (Forsaken(*view, hash)) {  // the sender believes us in a view that we have left for good
    if (!Quiet(now, from)) SendAll({from}, message::Leaving{hash}, out);
    return;
  }
  if (std::find(past_.begin(), past_.end(), hash) != past_.end() && seated()) {
    if (!Quiet(now, from)) SendAll({from}, NewsOf(now, *seating_), out);  // the sender is behind
    return;
  }
  Seating next(std::move(*view), hash);
  MergeGiven(next, from, news.seats, news.vacancies);
  if (pending_ && pending_->hash() == hash) {
    MergeGiven(*pending_, from, news.seats, news.vacancies);
    if (lineage_count_ && news.committed.averaging > lineage_count_->averaging)
      lineage_count_ = news.committed;
    return;
  }
  if (!GoesOnWithout(next) && !Wants(next)) return;
  if (!seated() && (!trainer_ || fetching_)) return;
  if (IsOwnBranch(next.view())) {
    const bool held =
        std::find(branches_held_.begin(), branches_held_.end(), hash) != branches_held_.end();
    if (from != following_ && !held)
      return metrics_.RefuseMessage(MessageRefusal::kBranchOfAnother);
    return Follow(now, std::move(next), news.committed, out);
  }
  Suppose(now, from, std::move(next), news.committed, out);
}

void Membership::OnViewAsk(Time now, const PeerId& from, const message::ViewAsk&, Actions& out) {
  if (seated()) SendAll({from}, NewsOf(now, *seating_), out);
}

void Membership::OnSeatingNews(Time now, const PeerId& from, const message::SeatingNews& news,
                               Actions& out) {
  for (const Contact& contact : news.contacts) roster_.Learn(contact, out);
  if (pending_ && pending_->hash() == news.view)
    MergeGiven(*pending_, from, news.seats, news.vacancies);
  if (const auto hint = FindHint(news.view); hint != hints_.end())
    MergeGiven(hint->next, from, news.seats, news.vacancies);
  if (!seating_ || seating_->hash() != news.view) return;
  if (TakeSeats(now, from, news.seats, news.vacancies, out)) SeatsChanged(now, out);
  // Who knows less may never be due first, and so never say what it knows: it is told at once.
  CompareSeats(now, from, news.all, out);
}

// ---- the successor register

void Membership::OnViewOpen(Time now, const PeerId& from, const message::ViewOpen& open,
                            Actions& out) {
  if (!seating_ || open.parent != seating_->hash()) {
    IsOurs(now, from, open.parent, out);
    return;
  }
  if (!OwnsBallot(seating_->view(), from, open.ballot))
    return metrics_.RefuseMessage(MessageRefusal::kBallotOfAnother);
  if (left_ == open.parent) return;  // who answered a branch witnesses nothing here any more
  if (pending_ && pending_->view().parent == open.parent)
    return SendAll({from}, NewsOf(now, *pending_), out);
  message::ViewPromise promise = witness_.OnOpen(seating_->view().epoch, open);
  if (promise.promised == open.ballot) {
    // From now to the decision no averaging gets going here that the proposer does not hear of.
    averaging_.HoldFrom(now, averaging_.bytes_begun() + 1, kProposalPatience, out);
    promise.begun = averaging_.bytes_begun();
  }
  SendAll({from}, promise, out);
}

void Membership::OnViewPromise(Time now, const PeerId& from, const message::ViewPromise& promise,
                               Actions& out) {
  if (proposer_) proposer_->OnPromise(now, from, promise, out);
}

void Membership::OnViewAccept(Time now, const PeerId& from, const message::ViewAccept& accept,
                              Actions& out) {
  if (!seating_ || accept.parent != seating_->hash()) {
    IsOurs(now, from, accept.parent, out);
    return;
  }
  if (!OwnsBallot(seating_->view(), from, accept.ballot))
    return metrics_.RefuseMessage(MessageRefusal::kBallotOfAnother);
  if (left_ == accept.parent) return;
  const auto view = Take(accept.view);
  if (!view) return;
  if (view->parent != accept.parent || view->epoch != seating_->view().epoch + 1)
    return metrics_.RefuseMessage(MessageRefusal::kViewParent);
  SendAll({from}, witness_.OnAccept(seating_->view().epoch, accept), out);
}

void Membership::OnViewAccepted(Time now, const PeerId& from, const message::ViewAccepted& accepted,
                                Actions& out) {
  if (proposer_) proposer_->OnAccepted(now, from, accepted, out);
}

// ---- branches

void Membership::OnBranchOpen(Time now, const PeerId& from, const message::BranchOpen& open,
                              Actions& out) {
  if (!IsOurs(now, from, open.parent, out) || !seated() || pending_) return;
  const Member* theirs = seating_->Find(from);
  if (theirs == nullptr) return;
  if (!following_.none() && following_ != from && !down_.contains(following_)) {
    const Member* leader = seating_->Find(following_);
    const auto key = [](const Member* m) { return std::pair(m->joined_unix_ms, m->id); };
    if (leader != nullptr && key(leader) < key(theirs)) return;  // the older one leads
    leader_.reset();
  }
  left_ = open.parent;
  left_since_ = now;
  following_ = from;
  SendAll({from}, message::BranchJoin{open.parent, open.attempt, averaging_.first_of_new_view()},
          out);
}

void Membership::OnBranchJoin(Time now, const PeerId& from, const message::BranchJoin& join,
                              Actions& out) {
  if (leader_) leader_->OnJoin(now, from, join, out);
}

void Membership::OnBranchView(Time, const PeerId& from, const message::BranchView& branch,
                              Actions& out) {
  if (from != following_ || left_ != branch.parent) return;
  auto view = Take(branch.view);
  if (!view) return;
  if (view->parent != branch.parent || view->Find(config_.id) == nullptr) return;
  branches_held_.push_back(HashOf(*view, config_.job));
  if (branches_held_.size() > kMaxPast) branches_held_.pop_front();
  SendAll({from}, message::BranchHeld{branch.parent, branch.attempt}, out);
}

void Membership::OnBranchHeld(Time, const PeerId& from, const message::BranchHeld& held, Actions&) {
  if (leader_) leader_->OnHeld(from, held);
}

void Membership::OnLeaving(Time now, const PeerId& from, const message::Leaving& leaving,
                           Actions& out) {
  joiners_.erase(from);
  if (!seating_ || seating_->hash() != leaving.view) return;
  // Its cell may be vacated already: by a steward that took it for dead, or that heard this first.
  // Averagings from before the vacancy have it as a member all the same.
  if (!Concerns(*seating_, from)) return;
  down_.insert(from);
  departed_.insert(from);
  averaging_.SetDown(down_);
  averaging_.OnPeerDown(now, from, SuspicionCause::kBye, out);
}

}  // namespace crowdsurf::worker
