// Ballots in a Round, as one of its members and as a witness: suspicion, OPEN, STATUS, PROMISE,
// ACCEPT, HAVE.
#include <algorithm>

#include "base/digest.h"
#include "worker/core/round/round.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::worker {

// ---- suspicion --------------------------------------------------------------------------------
void Round::OnSuspect(const PeerId& peer, SuspicionCause cause, RoundActions& out) {
  const int rank = RankOf(peer);
  if (rank == self()) return;
  if (rank >= 0) {
    suspected_.Insert(rank);
    if (cause == SuspicionCause::kReset) reset_.Insert(rank);
    doubted_.Insert(rank);
    SuspectRank(rank, cause, out);
  } else {
    SuspectOther(peer, out);
  }
  Drain(out);
}

// A speaker or a witness that is no member.
void Round::SuspectOther(const PeerId& peer, RoundActions& out) {
  if (!Involves(peer)) return Refuse(FrameRefusal::kStranger);
  distrusted_.insert(peer);
  AskSpeakers(out);
  TryFoldAll(out);
}

void Round::SuspectRank(int rank, SuspicionCause cause, RoundActions& out) {
  if (over_) return;
  for (ChunkAssignment& assignment : assignments_)  // without another holder the request stands
    if (assignment.fetching == rank && !TrustedHolders(assignment).empty())
      SetFetching(assignment, -1);
  FetchMissing(out);
  if (target_) return;
  ContactSpeakers(out);
  AskSpeakers(out);
  TryFoldAll(out);
  // The own ballot waits for this member's STATUS no longer.
  if (coordination_ && !coordination_->plan) return TryPlan(out);
  if (!Needs(rank)) return;
  ++counts_.ballots[cause];
  StartBallot(0, out);
}

// Without `rank` this member cannot finish in the ballot that is on.
bool Round::Needs(int rank) const {
  // The own ballot needs all of S until the witnesses are asked.
  if (coordination_)
    return !coordination_->accepting && coordination_->plan->members.Contains(rank);
  // On the fast path a member owes nothing more once its HAVE(0) is here.
  if (record_.promised == 0) return haves0_.count(static_cast<uint8_t>(rank)) == 0;
  if (CoordinatorOf(record_.promised) == rank) return true;
  // As a member of S: before the own HAVE is out, the owners of missing results are needed.
  if (seen_ != record_.promised || have_sent_ == seen_) return false;
  for (size_t c = 0; c < assignments_.size(); ++c)
    if (!slots_[c].held() && assignments_[c].holders.empty() && assignments_[c].owner == rank)
      return true;
  return false;
}

void Round::OnTrusted(const PeerId& peer, RoundActions& out) {
  const int rank = RankOf(peer);
  if (rank < 0) {
    distrusted_.erase(peer);
    AskSpeakers(out);
  } else {
    suspected_.Erase(rank);
    reset_.Erase(rank);
    orphan_ = false;  // its answer may bring what no one else has
    if (!over_ && Trusts(rank)) {
      // Inputs and results were withheld from it, and a broken connection may have lost its own.
      FetchMissing(out);
      SendInputs(rank, out);
      GiveAll(out);
      AskMember(rank, out);
    }
  }
  Drain(out);
}

void Round::OnRenewed(const PeerId& peer, RoundActions& out) {
  const int rank = RankOf(peer);
  if (rank < 0 || rank == self() || over_) return;
  doubted_.Insert(rank);
  std::vector<ChunkIndex> given;  // results that it may have given
  for (uint32_t c = 0; c < assignments_.size(); ++c) {
    ChunkAssignment& assignment = assignments_[c];
    if (assignment.fetching == rank) SetFetching(assignment, -1);
    const bool missing = !slots_[c].held() && Covers(self(), ChunkIndex(c));
    if (missing && assignment.owner == rank && assignment.holders.empty()) {
      given.push_back(ChunkIndex(c));
    }
  }
  // What it has not reduced yet it gives as soon as it has.
  if (Trusts(rank) && !given.empty()) Emit(PeerAt(rank), Fetch{std::move(given)}, out);
  FetchMissing(out);
  AskMember(rank, out);
  Drain(out);
}

void Round::OnCoordinatorLate(RoundActions& out) {
  if (over_) return;
  if (HoldersDied()) return OnSitOut(out);
  ++fetch_turn_;
  // Any request that is out may be lost.
  for (ChunkAssignment& assignment : assignments_) SetFetching(assignment, -1);
  FetchMissing(out);
  if (!target_) {
    ++counts_.ballots_late;
    // An own ballot that is stuck is followed by an own one; else it is the next rank's turn.
    const bool own = coordination_.has_value();
    const Ballot ballot = record_.promised;
    StartBallot(own ? self() : ballot == 0 ? 0 : CoordinatorOf(ballot) + 1, out);
  }
  Drain(out);
}

void Round::OnQuorumLost(RoundActions& out) {
  if (over_ || target_) return;
  // The first trusted rank alone opens: survivors that suspect the same members form one branch.
  int lowest = 0;
  while (!Trusts(lowest)) ++lowest;
  if (lowest == self()) OpenBallot({NextBallotOf(self()), true}, out);
  Drain(out);
}

// ---- ballots ----------------------------------------------------------------------------------
// The least ballot of `rank` above all that this member knows of.
Ballot Round::NextBallotOf(int rank) const {
  // Ballots go round the ranks: ballot b is of rank (b - 1) mod M (CoordinatorOf).
  const auto least = static_cast<size_t>(std::max(record_.promised, highest_)) + 1;
  const size_t offset = (least - 1) % ranks();
  const auto wanted = static_cast<size_t>(rank);
  return static_cast<Ballot>(least + (wanted + ranks() - offset) % ranks());
}

// Opens the next ballot when this is the first trusted rank from `from` on (cyclic); else asks that
// rank to, by an unasked STATUS, which saves OPEN's delay.
void Round::StartBallot(int from, RoundActions& out) {
  int rank = from % static_cast<int>(ranks());
  while (!Trusts(rank)) rank = (rank + 1) % static_cast<int>(ranks());
  const Ballot ballot = NextBallotOf(rank);
  if (rank == self()) return OpenBallot({ballot, branch_ != 0}, out);
  if (branch_ != 0) return;  // leaving for a branch is the coordinator's word alone
  if (ballot > MaxBallot()) return AskForDecision(out);
  Answer({ballot}, out);
}

// No ballot is left to open. Others may still have one, or a decision: who left now would be
// missing in their plan, or keep its values while they apply. So it says the OPEN of its own last
// turn again, which is answered with the decision and else changes nothing.
void Round::AskForDecision(RoundActions& out) {
  if (branch_ != 0) return;
  size_t last = static_cast<size_t>(self()) + 1;
  while (last + ranks() <= record_.promised) last += ranks();
  const BallotOpen open{static_cast<Ballot>(last), false, 0, fixed_->spec.age};
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (rank != self() && !left_.Contains(rank)) Emit(peer, open, out);
}

// Pre: ballot > promised.
void Round::Answer(BallotName name, RoundActions& out) {
  const auto [ballot, branch] = name;
  // Stakes that were held back for the plan of an earlier ballot go into this STATUS.
  HearLateSpeaks();
  ++ballot_progress_;
  record_.promised = ballot;
  if (branch) branch_ = ballot;
  // One ballot at a time: a coordinator that answers a higher one gives its own up.
  if (coordination_ && coordination_->ballot < ballot) coordination_.reset();
  const PeerId& coordinator = PeerAt(CoordinatorOf(ballot));
  if (coordinator != fixed_->self) orphan_ = false;  // it may know of others that hold it
  Emit(coordinator, MakeStatus(name), out);
  // Witnesses are of the view: a branch is decided by its members alone.
  if (!branch && fixed_->witness >= 0)
    Emit(coordinator, Promise{ballot, record_.accepted, record_.value}, out);
}

StatusFrame Round::MakeStatus(BallotName ballot) const {
  StatusFrame status;
  status.ballot = ballot.ballot;
  status.branch = ballot.branch;
  status.complete = complete_;
  status.complete_abort = complete_ && complete_abort_;
  status.applied = over_.has_value() && Applied(over_->outcome);
  status.held = slots_;
  status.served.assign(served_.begin(), served_.end());
  status.plans = plans_;
  status.stakes = stakes_;
  return status;
}

void Round::OnBallotOpen(const PeerId& from, const BallotOpen& frame, RoundActions& out) {
  const int rank = RankOf(from);
  if (rank < 0 || frame.ballot == 0 || frame.ballot > MaxBallot() ||
      CoordinatorOf(frame.ballot) != rank)
    return Refuse(FrameRefusal::kOpenStranger);
  if (left_.Contains(rank))
    return Refuse(FrameRefusal::kLeft);  // it does not fit: no ballots of its
  if (frame.parent != branch_) return Refuse(FrameRefusal::kOtherBranch);
  // A member with a decision answers with it; one that kept its own values has none to give.
  const bool kept = over_ && !Applied(over_->outcome) && over_->outcome != Outcome::kAborted;
  if (!kept && !frame.branch && (over_ || target_)) return SendDecision(rank, out);
  if (frame.ballot <= record_.promised) {
    if (frame.ballot < record_.promised) Emit(from, Refused{record_.promised}, out);
    return Refuse(FrameRefusal::kBallotOld);
  }
  if (kept || (over_ && over_->outcome == Outcome::kAborted)) {
    // Out of this round, but still a witness of it.
    Emit(from, Bye{ByeReason::kSatOut}, out);
    if (frame.branch || fixed_->witness < 0) return;
    record_.promised = frame.ballot;
    Emit(from, Promise{frame.ballot, record_.accepted, record_.value}, out);
    return;
  }
  target_.reset();  // a branch leaves the parent, and with it the decision that was being fetched
  Answer({frame.ballot, frame.branch}, out);
}

// ---- as a witness -----------------------------------------------------------------------------
void Round::OnAccept(const PeerId& from, const Accept& frame, RoundActions& out) {
  const int rank = RankOf(from);
  if (rank < 0 || frame.ballot == 0 || frame.ballot > MaxBallot() ||
      CoordinatorOf(frame.ballot) != rank || fixed_->witness < 0)
    return Refuse(FrameRefusal::kAcceptStranger);
  if (left_.Contains(rank)) return Refuse(FrameRefusal::kLeft);
  if (branch_ != 0) return Refuse(FrameRefusal::kOtherBranch);
  if (!worker::TryAccept(record_, frame.ballot, frame.value)) {
    Emit(from, Refused{record_.promised}, out);
    return Refuse(FrameRefusal::kBallotOld);
  }
  if (coordination_ && coordination_->ballot < frame.ballot) coordination_.reset();
  const Accepted accepted{frame.ballot, Sha256(frame.value)};
  // Only members of this group are told: the list is a peer's word.
  std::set<PeerId> learners = {from};
  for (const PeerId& peer : frame.learners)
    if (RankOf(peer) >= 0) learners.insert(peer);
  for (const PeerId& peer : learners) Emit(peer, accepted, out);
}

// ---- HAVE and ACCEPTED ------------------------------------------------------------------------
void Round::OnHave(const PeerId& from, const Have& frame, RoundActions& out) {
  const int rank = RankOf(from);
  if (rank < 0) return Refuse(FrameRefusal::kStranger);
  if (over_ || target_) {
    // After a fast round the sender gets HAVE(0) from everybody, and needs no decision.
    const bool repaired = frame.ballot > 0 || !over_ || over_->ballot > 0;
    if (rank != self() && repaired) SendDecision(rank, out);
    return;
  }
  if (frame.ballot > 0) return CollectHave(rank, frame, out);
  if (!haves0_.emplace(static_cast<uint8_t>(rank), frame.root).second)
    return Refuse(FrameRefusal::kHaveTwice);
  ++progress_;
  if (!have0_) return;
  for (const auto& [other, root] : haves0_) {
    if (root == *have0_) continue;
    ++counts_.root_mismatch;
    if (record_.promised > 0) return;
    ++counts_.ballots[SuspicionCause::kMismatch];
    return StartBallot(0, out);
  }
  TryFast(out);
}

// All slots are as plan `seen_` wants them: tell its coordinator.
void Round::SendHave(const HeldValue& held, RoundActions& out) {
  have_sent_ = seen_;
  have_value_ = Sha256(EncodeHeldValue(held));
  votes_ = 0;
  complete_ = seen_;
  complete_abort_ = held.value.abort;
  Emit(PeerAt(CoordinatorOf(seen_)), Have{seen_, RootOf(held.value)}, out);
}

void Round::OnAccepted(const PeerId& from, const Accepted& frame, RoundActions& out) {
  const auto witness = fixed_->witness_of.find(from);
  if (witness == fixed_->witness_of.end()) return Refuse(FrameRefusal::kStranger);
  if (over_ || target_) return;
  if (frame.ballot == 0 || frame.ballot != have_sent_ || frame.value != have_value_ || branch_ != 0)
    return Refuse(FrameRefusal::kAcceptedOther);
  ++progress_;
  votes_ |= uint64_t{1} << witness->second;
  if (!IsQuorumOf(fixed_->spec.witnesses.size(), votes_)) return;
  Conclude(plan_abort_ ? Outcome::kAborted : Outcome::kRepaired, {have_sent_}, plan_members_, out);
}

void Round::OnBye(const PeerId& from, const Bye& frame, RoundActions& out) {
  const int rank = RankOf(from);
  if (rank < 0 && frame.reason == ByeReason::kCannotSpeak) return IgnoreSpeaker(from, out);
  if (rank < 0 && frame.reason == ByeReason::kSatOut) return;  // a witness is none the worse for it
  if (rank < 0) return SuspectOther(from, out);
  if (rank == self()) return;
  left_.Insert(rank);
  SuspectRank(rank, SuspicionCause::kBye, out);
  if (!over_ && HoldersDied()) GiveUp(Outcome::kOrphaned, ByeReason::kSatOut, out);
}

}  // namespace crowdsurf::worker
