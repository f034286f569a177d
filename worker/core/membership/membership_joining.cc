// A newcomer's side of membership, and a losing lineage's (membership.h).
#include <algorithm>

#include "worker/core/averaging/averaging.h"
#include "worker/core/membership/membership.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kFetchPause = Milliseconds(200);  // after a transfer that failed
constexpr Duration kSeekLineageEvery = Milliseconds(500);
// For first parameters whose donors fail: a worker that goes without them is better than none. One
// try ends after half a minute without progress.
constexpr Duration kFirstPatience = Seconds(30);

}  // namespace

void Membership::OnTrainer(Time now, const TrainerRegistered& trainer) {
  trainer_ = trainer;
  averaging_.OnTrainer(now, trainer);
  started_trainer_ = !trainer.fresh;
  giving_first_ = holds_first_ = own_first_ = false;
  highest_first_ = AveragingId(trainer.gives_first ? 1 : 0);
  first_sought_ = Time();
  first_from_ = PeerId();
  if (!trainer.fresh) return;
  holds_ = restored_ ? restored_->averaging : AveragingId();
  if (restored_) averaging_.OnHolds(*restored_);
}

// Without its trainer a peer has nothing to say in a round: it gives its cell back.
void Membership::OnTrainerGone(Time now, Actions& out) {
  trainer_.reset();
  fetching_.reset();
  restored_.reset();  // its successor fetches from the peers
  averaging_.OnTrainerGone(now, out);
  holds_ = AveragingId();
  // After the end of the job trainers go; who asks late must still hear of the view that says so.
  if (seating_ && !job_over_) GiveSeatBack(now, out);
}

void Membership::GiveSeatBack(Time now, Actions& out) {
  SendAll(Others(*seating_), message::Leaving{seating_->hash()}, out);
  Unseat(now, out);
}

void Membership::OnRestored(const RestoredCheckpoint& checkpoint) {
  restored_seconds_ = checkpoint.job_seconds;
  if (!checkpoint.ledger.empty()) averaging_.OnRestoredLedger(checkpoint.ledger);
  restored_ = Committed{.averaging = checkpoint.averaging,
                        .root = checkpoint.root,
                        .job_samples = checkpoint.job_samples};
}

bool Membership::Trained() const {
  const bool adopted = averaging_.start().adopted() && !holds_first_;
  return averaging_.took_part() || adopted || (trainer_ && !trainer_->fresh) || own_first_;
}

void Membership::AskForSeat(Time, const PeerId& peer, Actions& out) {
  metrics_.joins_asked->Add();
  std::optional<LineageRank> leaving;
  if (seated()) leaving = RankHere();
  // Two lineages have the same numbers, and each its own first parameters: for anybody else they
  // count for nothing.
  const bool elsewhere = holds_first_ && peer != first_from_;
  AveragingId holds = holds_;
  if (averaging_.took_part()) holds = std::max(holds, averaging_.committed().averaging);
  // Values of several averages are none of them.
  if (elsewhere || averaging_.start().mixed()) holds = AveragingId();
  SendAll({peer},
          message::JoinRequest{.member = Self(),
                               .contact = roster_.ContactsOf({config_.id}).front(),
                               .next = averaging_.first_of_new_view(),
                               .holds = holds,
                               .trained = Trained(),
                               .schema = trainer_->schema,
                               .lineage = leaving},
          out);
}

void Membership::SeekSeat(Time now, Actions& out) {
  if (!trainer_ || fetching_ || now < fetch_again_) return;
  const Joining::Step step = joining_.Next(now, holds_);
  if (step.ask) return AskForSeat(now, *step.ask, out);
  if (step.form) FormFirst(now, out);
}

void Membership::FormFirst(Time now, Actions& out) {
  clock_.Learn(now, restored_ ? restored_seconds_ : 0);
  // Where gradients are averaged, members compare their parameters at the first step.
  giving_first_ = trainer_->gives_first && !AveragesGradients(newest_) && holds_.is_zero() &&
                  averaging_.ReserveFirst();
  const View view = FirstView(Self(), Facts());
  log_.Info("first view formed", {{"averaging", view.first_averaging.value()}});
  Enter(now, Seating(view, HashOf(view, config_.job)), out);
  if (!giving_first_) AnswerJoiners(out);
  Govern(now, out);
  TakePending(now, out);
}

// Those who asked before there was a view, or first parameters, are answered as if they asked now.
void Membership::AnswerJoiners(Actions& out) {
  for (auto at = joiners_.begin(); at != joiners_.end();) {
    const auto objection = Objection(at->second.request);
    if (objection && objection->kind == message::JoinAnswer::Kind::kFetchFirst)
      NoteFetch(at->first, objection->committed.averaging);
    if (objection) SendAll({at->first}, *objection, out);
    at = objection ? joiners_.erase(at) : std::next(at);
  }
}

// This peer formed the first view: its trainer is held until it has given its parameters, and all
// that want a seat wait until they can fetch them.
void Membership::TendFirst(Actions& out) {
  if (!giving_first_) return;
  LetStartOnce(out);
  if (averaging_.gives_first()) return;
  giving_first_ = false;
  holds_ = averaging_.committed().averaging;
  holds_first_ = !holds_.is_zero();
  first_from_ = PeerId();  // its own, and not those of a peer that it could not fetch from
  highest_first_ = std::max(highest_first_, holds_);
  AnswerJoiners(out);
}

void Membership::NoteFirstMissed(Time now) {
  if (own_first_ || first_sought_.unset() || now - first_sought_ < kFirstPatience) return;
  own_first_ = true;
  metrics_.first_own->Add();
  log_.Warning("no donor gives the job's first parameters: the trainer starts from its own", {});
}

// Whatever its record says: that may be older than the seat. Who has gone is down.
bool Membership::SitsHere(const PeerId& peer) const {
  return seating_ && seating_->CellOf(peer) && !down_.contains(peer);
}

LineageCount Membership::OtherLineages() const {
  return CountLineages(roster_.live(), [this](const PeerId& peer) { return SitsHere(peer); });
}

// Members that live in the present view, with this peer.
LineageRank Membership::RankHere() const {
  return {.members = LiveOthers() + 1, .origin = lineage().origin};
}

// A member of the best lineage that beats ours; of those one that was not asked in vain.
const RosterRecord* Membership::BestOtherLineage() {
  // Every input comes here, and nearly always all sit in one lineage.
  const auto elsewhere = [&, own = lineage().origin](const auto& entry) {
    const RosterRecord& record = entry.second;
    return record.seated && !record.leaving && record.lineage.origin != own;
  };
  if (std::none_of(roster_.live().begin(), roster_.live().end(), elsewhere)) return nullptr;
  const auto best = OtherLineages().Better(RankHere());
  if (!best) return nullptr;
  const RosterRecord* chosen = nullptr;
  for (const auto& [peer, record] : roster_.live()) {
    const bool there = record.seated && !record.leaving && record.lineage.origin == best->origin;
    if (!there || SitsHere(peer)) continue;
    if (chosen == nullptr || lineage_asked_.contains(chosen->member.id)) chosen = &record;
  }
  if (chosen != nullptr && !lineage_asked_.insert(chosen->member.id).second) lineage_asked_.clear();
  return chosen;
}

// A member of a lineage that loses against another one asks the winner for a seat.
void Membership::SeekBetterLineage(Time now, Actions& out) {
  if (fetching_ || now < seek_lineage_at_ || !trainer_ || !left_.none()) return;
  const RosterRecord* best = BestOtherLineage();
  if (best == nullptr) {
    seat_refused_.reset();
    return;
  }
  seek_lineage_at_ = now + kSeekLineageEvery;
  log_.Info("asking the better lineage for a seat",
            {{"live", OtherLineages().Of(best->lineage.origin).members}});
  AskForSeat(now, best->member.id, out);
}

// A reason is said once, with the first member that gave it: the next may be another one.
void Membership::NoteRefusal(const PeerId& from, const message::JoinAnswer* refusal) {
  if (refusal == nullptr) return seat_refused_.reset();
  if (seat_refused_ && seat_refused_->reason == refusal->reason) return;
  seat_refused_ = SeatRefusal{.reason = refusal->reason, .worker = roster_.WorkerOf(from)};
  if (!trainer_ || refusal->reason != kAnotherTable) return;
  const std::vector<uint32_t>&own = trainer_->marks, &theirs = refusal->marks;
  const auto [at, _] = std::mismatch(own.begin(), own.end(), theirs.begin(), theirs.end());
  // The tables may differ in what has no mark.
  const bool differ = at != own.end() || theirs.size() > own.size();
  if (!theirs.empty() && !own.empty() && differ) seat_refused_->tensor = at - own.begin();
}

void Membership::OnJoinAnswer(Time now, const PeerId& from, const message::JoinAnswer& answer,
                              Actions& out) {
  for (const Contact& contact : answer.contacts) roster_.Learn(contact, out);
  joining_.OnAnswer(now, from, answer);
  lineage_asked_.erase(from);
  const bool refused = answer.kind == message::JoinAnswer::Kind::kRefused;
  if (refused) log_.Warning("seat refused", {{"reason", answer.reason}});
  // A seat elsewhere is wanted and not given; a seated peer may be refused for the moment only,
  // by a lineage that has just become the lesser one.
  const bool for_long = !seated() || answer.reason == kAnotherTable;
  if (!seated() || !seating_->CellOf(from))
    NoteRefusal(from, refused && for_long ? &answer : nullptr);
  if (seated() && seating_->CellOf(from)) return;  // late: it was seated meanwhile
  if (seated() && answer.kind == message::JoinAnswer::Kind::kAskSteward && trainer_ &&
      !answer.contacts.empty() && !Quiet(now, answer.contacts.front().id))
    AskForSeat(now, answer.contacts.front().id, out);
  if (answer.kind != message::JoinAnswer::Kind::kFetchFirst || fetching_ || !trainer_) return;
  // First parameters that it holds may be those of another lineage.
  if (answer.committed.averaging <= holds_ && !holds_first_) return;
  if (answer.committed.averaging.is_zero() || answer.contacts.empty()) return;
  if (seated() && averaging_.rounds().open()) {
    // Its round is finished first, or it would fail for its other members; no new one begins before
    // it asks again.
    averaging_.HoldFrom(now, averaging_.bytes_begun() + 1, kSeekLineageEvery * 2, out);
    return;
  }
  // Nothing of its own lineage is worth keeping: it comes as a newcomer.
  if (seated()) GiveSeatBack(now, out);
  fetching_ = answer.committed;
  if (fetching_->job_samples == 0 && first_sought_.unset()) first_sought_ = now;
  first_from_ = from;
  std::vector<PeerId> donors;
  for (const Contact& contact : answer.contacts) donors.push_back(contact.id);
  averaging_.OnFetch(now, Region::kInboxA, out);
  out.push_back(FetchState{.averaging = answer.committed.averaging,
                           .root = answer.committed.root,
                           .donors = std::move(donors),
                           .region = Region::kInboxA,
                           .adopt = true});
}

void Membership::OnStateFetched(Time now, const StateFetched& fetched, Actions& out) {
  if (!fetching_) return averaging_.OnFetched(now, fetched, out);
  if (fetched.averaging < fetching_->averaging) return;
  Committed got = *std::exchange(fetching_, std::nullopt);
  if (fetched.averaging > got.averaging) {  // the donors went on while it was asked for
    got = {
        .averaging = fetched.averaging, .root = fetched.root, .job_samples = fetched.job_samples};
  }
  if (!fetched.ok) {
    if (got.job_samples == 0) NoteFirstMissed(now);
    fetch_again_ = now + kFetchPause;
    joining_.AskSoon();
    return;
  }
  fetch_again_ = Time();
  holds_ = got.averaging;
  holds_first_ = got.job_samples == 0;
  if (holds_first_) highest_first_ = std::max(highest_first_, holds_);
  first_sought_ = Time();
  started_trainer_ = true;
  joined_with_state_ = !holds_first_;
  if (fetched.mixed) got.root = Digest();
  averaging_.OnAdopted(got);
  // A checkpoint is taken by who has a seat.
  if (!seated()) averaging_.SetStart({got.averaging, fetched.mixed});
  joining_.AskSoon();
  log_.Info("state adopted", {{"averaging", got.averaging.value()}, {"mixed", fetched.mixed}});
}

// The held trainer starts: from the restored average, or from its own first parameters, when it has
// given them.
void Membership::LetStartOnce(Actions& out) {
  if (started_trainer_ || !trainer_ || averaging_.asks_for_first()) return;
  started_trainer_ = true;
  if (!restored_ || restored_->averaging != holds_) {
    out.push_back(LetStart{});
    return;
  }
  fetching_ = restored_;
  out.push_back(FetchState{.averaging = restored_->averaging,
                           .root = restored_->root,
                           .donors = {},
                           .region = Region::kInboxA,
                           .adopt = true});
}

}  // namespace crowdsurf::worker
