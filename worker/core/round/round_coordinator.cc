// A Round as the coordinator of its own ballots: OPEN, collect STATUS and PROMISE, PLAN, collect
// HAVE, ACCEPT.
#include <algorithm>

#include "worker/core/round/round.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::worker {

void Round::OpenBallot(BallotName name, RoundActions& out) {
  const auto [ballot, branch] = name;
  if (ballot > MaxBallot()) return AskForDecision(out);
  Coordination fresh;
  fresh.ballot = ballot;
  fresh.branch = branch;
  coordination_ = std::move(fresh);
  const BallotOpen open{ballot, branch, branch_, fixed_->spec.age};
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (rank != self() && !left_.Contains(rank)) Emit(peer, open, out);
  // Witnesses that are members got it above, unless they left the round: these still witness.
  if (!branch)
    for (const PeerId& witness : fixed_->spec.witnesses)
      if (RankOf(witness) < 0 || left_.Contains(RankOf(witness))) Emit(witness, open, out);
  Answer(name, out);
}

bool Round::IsValid(const StatusFrame& status) const {
  if (status.held.size() != assignments_.size()) return false;
  for (const ChunkValue& chunk : status.held)
    if (chunk.held() && !InGroup(chunk.mask)) return false;
  if (!std::is_sorted(status.served.begin(), status.served.end())) return false;
  for (const auto& [rank, stake] : status.stakes)
    if (rank >= ranks() || !worker::IsValid(stake)) return false;
  // "Complete" with an empty slot would make rule 3 keep a value that its sender does not hold.
  if (!status.complete || status.complete_abort) return true;
  return std::all_of(status.held.begin(), status.held.end(),
                     [](const ChunkValue& chunk) { return chunk.held(); });
}

void Round::OnStatus(const PeerId& from, const StatusFrame& frame, RoundActions& out) {
  const int rank = RankOf(from);
  if (rank < 0 || frame.ballot == 0 || frame.ballot > MaxBallot() ||
      CoordinatorOf(frame.ballot) != self())
    return Refuse(FrameRefusal::kStatusStranger);
  if (!IsValid(frame)) return Refuse(FrameRefusal::kStatusUnsound);
  if ((over_ || target_) && !frame.branch) {
    SendDecision(rank, out);
    if (over_ && over_->outcome != Outcome::kAborted && !Applied(over_->outcome))
      Emit(from, Bye{ByeReason::kSatOut}, out);
    return;
  }
  // Unasked: its sender suspects somebody and wants this ballot opened.
  if (frame.ballot > record_.promised && !frame.branch && branch_ == 0)
    OpenBallot({frame.ballot}, out);
  if (!coordination_ || coordination_->ballot != frame.ballot ||
      coordination_->branch != frame.branch) {
    if (frame.ballot < record_.promised) Emit(from, Refused{record_.promised}, out);
    return Refuse(FrameRefusal::kBallotOld);
  }
  if (coordination_->plan) return Refuse(FrameRefusal::kStatusLate);
  coordination_->statuses.emplace(static_cast<uint8_t>(rank), frame);
  ++ballot_progress_;
  TryPlan(out);
}

void Round::OnPromise(const PeerId& from, const Promise& frame, RoundActions& out) {
  const auto witness = fixed_->witness_of.find(from);
  if (witness == fixed_->witness_of.end()) return Refuse(FrameRefusal::kStranger);
  // A promise that comes with an unasked STATUS may overtake it.
  if (frame.ballot > record_.promised && frame.ballot <= MaxBallot() && !over_ && !target_ &&
      branch_ == 0 && CoordinatorOf(frame.ballot) == self() && RankOf(from) >= 0)
    OpenBallot({frame.ballot}, out);
  if (!coordination_ || coordination_->ballot != frame.ballot || coordination_->plan)
    return Refuse(FrameRefusal::kBallotOld);
  // Paxos, phase 1: the value accepted at the highest ballot binds the plan (rule 1).
  if (frame.accepted > coordination_->accepted) {
    std::optional<HeldValue> value = DecodeHeldValue(frame.value);
    if (!value || !IsValid(*value)) return Refuse(FrameRefusal::kPromiseUnsound);
    coordination_->accepted = frame.accepted;
    coordination_->accepted_value = std::move(value);
  }
  ++ballot_progress_;
  coordination_->promised |= uint64_t{1} << witness->second;
  TryPlan(out);
}

// Everybody trusted has answered, and a quorum of the witnesses: PROMISE before PLAN is essential.
void Round::TryPlan(RoundActions& out) {
  if (!coordination_ || coordination_->plan) return;
  Coordination& own = *coordination_;
  PlanQuestion question;
  for (int rank = 0; rank < static_cast<int>(ranks()); ++rank) {
    if (!Trusts(rank)) continue;
    const auto status = own.statuses.find(static_cast<uint8_t>(rank));
    if (status == own.statuses.end()) return;
    question.statuses.insert(*status);
  }
  if (!own.branch && !IsQuorumOf(fixed_->spec.witnesses.size(), own.promised)) return;
  question.spec = &fixed_->spec;
  question.ballot = own.ballot;
  question.branch = own.branch;
  question.may_abort = MayAbort(own.ballot);
  question.accepted = own.accepted;
  question.accepted_value = own.accepted_value;
  const std::optional<Plan> plan = fixed_->rule(question);
  orphan_ = !plan.has_value();
  if (!plan) {  // a suspect may come back with what must be kept, unless it is dead or has gone on
    const RankSet others = fixed_->members - left_ - reset_ - own_rank();
    if (!others.Meets(suspected_)) GiveUp(Outcome::kOrphaned, ByeReason::kSatOut, out);
    return;  // else the sit-out ends it
  }
  own.plan = plan;
  own.statuses.clear();
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (plan->members.Contains(rank)) Emit(peer, *plan, out);
}

void Round::CollectHave(int rank, const Have& frame, RoundActions& out) {
  if (!coordination_ || coordination_->ballot != frame.ballot || !coordination_->plan ||
      !coordination_->plan->members.Contains(rank))
    return Refuse(FrameRefusal::kBallotOld);
  if (!coordination_->haves.emplace(static_cast<uint8_t>(rank), frame.root).second)
    return Refuse(FrameRefusal::kHaveTwice);
  ++progress_;
  TryAccept(out);
}

void Round::TryAccept(RoundActions& out) {
  // All of S hold it before a witness is asked, so a decided value is held by all of them (S4).
  const RankSet members = coordination_->plan->members;
  for (int rank = 0; rank < static_cast<int>(ranks()); ++rank)
    if (members.Contains(rank) && coordination_->haves.count(static_cast<uint8_t>(rank)) == 0)
      return;
  const Digest root = coordination_->haves.at(static_cast<uint8_t>(self()));
  // Two values under one plan: a new ballot compares what each of S holds.
  for (const auto& [rank, have] : coordination_->haves) {
    if (have == root) continue;
    ++counts_.root_mismatch;
    ++counts_.ballots[SuspicionCause::kMismatch];
    return OpenBallot({NextBallotOf(self()), branch_ != 0}, out);
  }
  const Ballot ballot = coordination_->ballot;
  if (coordination_->branch) return ConcludeBranch(ballot, members, out);
  HeldValue held;
  held.members = members;
  held.value.abort = plan_abort_;
  if (!plan_abort_) held.value = *CurrentValue();
  Accept accept{ballot, fixed_->spec.age, EncodeHeldValue(held), {}};
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (members.Contains(rank)) accept.learners.push_back(peer);
  coordination_->accepting = true;
  for (const PeerId& witness : fixed_->spec.witnesses) Emit(witness, accept, out);
}

// All of S hold it: that decides a branch.
void Round::ConcludeBranch(Ballot ballot, RankSet members, RoundActions& out) {
  if (!over_)
    return Conclude(plan_abort_ ? Outcome::kAborted : Outcome::kRepaired, {ballot, true}, members,
                    out);
  JoinBranch(ballot, members, out);
  coordination_.reset();
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (rank != self()) SendDecision(rank, out);
}

void Round::OnRefused(const PeerId&, const Refused& frame, RoundActions&) {
  // A number above the highest cannot be true, and would leave this member no ballot of its own.
  if (frame.promised <= MaxBallot()) highest_ = std::max(highest_, frame.promised);
}

// The witness pruned this instance: it is too old to be decided.
void Round::OnForgotten(const PeerId& from, const Forgotten& frame, RoundActions& out) {
  if (fixed_->witness_of.count(from) == 0) return Refuse(FrameRefusal::kStranger);
  if (!over_ && !target_ && coordination_ && coordination_->ballot == frame.ballot)
    GiveUp(Outcome::kKept, ByeReason::kSatOut, out);
}

}  // namespace crowdsurf::worker
