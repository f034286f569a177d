// Plans and decisions in a Round: taking a PLAN, adopting DECIDED, fetching results.
#include "worker/core/round/round.h"

namespace crowdsurf::worker {

// ---- what came makes sense --------------------------------------------------------------------
bool Round::IsValid(const Plan& plan) const {
  if (plan.members.empty() || !fixed_->members.ContainsAll(plan.members)) return false;
  for (const auto& [rank, stake] : plan.stakes)
    if (rank >= ranks() || !worker::IsValid(stake) || !SameBase(stake)) return false;
  if (plan.abort) return plan.chunks.empty();
  if (plan.chunks.size() != assignments_.size()) return false;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    const PlanChunk& chunk = plan.chunks[c];
    if (chunk.owner >= ranks() || !plan.members.Contains(chunk.owner)) return false;
    // To be reduced: by its first owner as from the start, or anew under this very ballot.
    if (chunk.holders.empty()) {
      if (chunk.value.held()) return false;
      const bool first = chunk.assigned == 0 && chunk.owner == fixed_->spec.chunks[c].owner;
      if (!first && chunk.assigned != plan.ballot) return false;
    } else {
      // To be adopted: a result keeps the ballot under which it was reduced.
      if (!plan.members.ContainsAll(chunk.holders) || !InGroup(chunk.value.mask)) return false;
      if (chunk.value.assigned != chunk.assigned || chunk.assigned > plan.ballot) return false;
    }
  }
  return true;
}

bool Round::IsValid(const HeldValue& held) const {
  if (held.members.empty() || !fixed_->members.ContainsAll(held.members)) return false;
  if (held.value.abort) return held.value.chunks.empty() && held.value.stakes.empty();
  if (held.value.chunks.size() != assignments_.size() || held.value.stakes.size() != ranks())
    return false;
  for (const ChunkValue& chunk : held.value.chunks)
    if (!InGroup(chunk.mask)) return false;
  const RankSet contributors = ContributorsOf(held.value);
  for (size_t rank = 0; rank < held.value.stakes.size(); ++rank) {
    const Stake& stake = held.value.stakes[rank];
    if (!worker::IsValid(stake)) return false;
    if (contributors.Contains(rank) && !SameBase(stake)) return false;
  }
  return true;
}

// The members of the decided value have other chunks or another base: this member can have no part
// in it. It came late, and what it waits for does not come any more.
bool Round::IsOfOthers(const HeldValue& held) const {
  if (!fixed_->spec.leaves_when_behind || held.value.abort) return false;
  if (held.members.empty() || !fixed_->members.ContainsAll(held.members) ||
      held.members.Contains(self()) || held.value.stakes.size() != ranks())
    return false;
  if (held.value.chunks.size() != assignments_.size()) return true;
  for (size_t rank = 0; rank < ranks(); ++rank) {
    const Stake& stake = held.value.stakes[rank];
    if (held.members.Contains(rank) && worker::IsValid(stake) && !SameBase(stake)) return true;
  }
  return false;
}

// Not empty, and of ranks that exist.
bool Round::InGroup(RankSet set) const {
  return !set.empty() && RankSet::FirstRanks(ranks()).ContainsAll(set);
}

// ---- plans ------------------------------------------------------------------------------------
void Round::OnPlan(const PeerId& from, const Plan& frame, RoundActions& out) {
  const int rank = RankOf(from);
  if (rank < 0 || frame.ballot == 0 || CoordinatorOf(frame.ballot) != rank)
    return Refuse(FrameRefusal::kPlanStranger);
  if ((over_ || target_) && !frame.branch) {
    if (rank != self()) SendDecision(rank, out);
    return;
  }
  // A plan rests on the STATUS that this member gave for exactly that ballot.
  if (frame.ballot != record_.promised) {
    if (frame.ballot < record_.promised) Emit(from, Refused{record_.promised}, out);
    return Refuse(FrameRefusal::kBallotOld);
  }
  if (frame.ballot <= seen_) return Refuse(FrameRefusal::kPlanTwice);
  if (branch_ != (frame.branch ? frame.ballot : 0)) return Refuse(FrameRefusal::kOtherBranch);
  if (!IsValid(frame) || !frame.members.Contains(self())) return Refuse(FrameRefusal::kPlanUnsound);
  if (!over_) return TakePlan(frame, out);
  // Applied before, and asked into a branch: the plan must be that value.
  bool same = Applied(over_->outcome) && !frame.abort;
  for (size_t c = 0; same && c < slots_.size(); ++c) same = frame.chunks[c].value == slots_[c];
  if (!same) {
    ++counts_.divergence;
    return;
  }
  NotePlan(frame);
  SendHave({plan_members_, *CurrentValue()}, out);
}

void Round::NotePlan(const Plan& plan) {
  seen_ = plan.ballot;
  follow_ = {};
  lacking_.clear();  // they may lack more now
  ++ballot_progress_;
  plans_[plan.ballot] = AssignmentHash(plan);
  plan_members_ = plan.members;
  plan_abort_ = plan.abort;
  excluded_ = plan.excluded;
  have_sent_ = 0;
  for (const auto& [rank, stake] : plan.stakes) {
    const auto [known, fresh] = stakes_.emplace(rank, stake);
    if (fresh || known->second == stake) continue;
    // What was said of another value is void.
    known->second = stake;
    own_word_.Erase(rank);
    speaker_replies_.erase(rank);
    asked_.EraseRank(rank);
  }
  own_word_ |= plan.members;  // members of S say what they are worth
}

void Round::TakePlan(const Plan& plan, RoundActions& out) {
  NotePlan(plan);
  if (plan.abort) {
    complete_.reset();
    RoundValue value;
    value.abort = true;
    return SendHave({plan_members_, value}, out);
  }
  for (uint32_t c = 0; c < plan.chunks.size(); ++c) Assign(ChunkIndex(c), plan.chunks[c], out);
  DropStale(out);
  RebuildLanes();
  SendAllInputs(out);
  GiveAll(out);  // what was folded since the own STATUS
  HearLateSpeaks();
  // A second plan: something did not arrive, so whatever is missing is asked for once more.
  if (plans_.size() > 1) ForgetAsks();
  ContactSpeakers(out);
  AskSpeakers(out);
  for (int rank = 0; rank < static_cast<int>(ranks()); ++rank)
    if (plans_.size() > 1 || doubted_.Contains(rank)) AskMember(rank, out);
  FetchMissing(out);
  TryFoldAll(out);
  TryHave(out);
}

void Round::Assign(ChunkIndex chunk, const PlanChunk& to, RoundActions& out) {
  ChunkAssignment& assignment = assignments_[chunk.value()];
  ChunkValue& slot = slots_[chunk.value()];
  // A result stays if it is of the same assignment and, where the plan names one, that very result.
  const bool keep = slot.assigned == to.assigned && (to.holders.empty() || slot == to.value);
  if (slot.held() && !keep) {
    // What this plan makes void must not be offered to a later one as complete.
    slot = ChunkValue();
    assignment.given = {};
    ++missing_;
    complete_.reset();
    out.push_back(EmptySlot{chunk});
  }
  // What was sent under the assignment before does not count for this one.
  if (assignment.assigned != to.assigned) {
    assignment.sent_again = false;
    assignment.given = {};
  }
  assignment.assigned = to.assigned;
  assignment.owner = to.owner;
  assignment.holders = to.holders;
  assignment.want = to.value;
  SetFetching(assignment, -1);
  if (to.owner == self() && to.holders.empty() && !slot.held()) {
    pending_.insert(chunk);
  } else {
    pending_.erase(chunk);
    asked_.EraseChunk(chunk);
  }
}

// Inputs of assignments that are not this member's any more.
void Round::DropStale(RoundActions& out) {
  for (auto it = inputs_.begin(); it != inputs_.end();) {
    const auto [chunk, assigned] = it->first;
    if (pending_.count(chunk) > 0 && assignments_[chunk.value()].assigned == assigned) {
      ++it;
      continue;
    }
    if (!(it->second.in | it->second.folding).empty()) out.push_back(DropInputs{chunk, assigned});
    it = inputs_.erase(it);
  }
  // What is left is for the assignments of now, so none of it is early any more.
  early_ = 0;
}

// ---- decisions --------------------------------------------------------------------------------
void Round::OnDecided(const PeerId& from, const Decided& frame, RoundActions& out) {
  const int rank = RankOf(from);
  if (rank < 0) return Refuse(FrameRefusal::kStranger);
  if (left_.Contains(rank)) return Refuse(FrameRefusal::kLeft);
  if (!over_ && !target_ && IsOfOthers(frame.held))
    return GiveUp(Outcome::kLeft, ByeReason::kSatOut, out);
  if (!IsValid(frame.held)) return Refuse(FrameRefusal::kDecidedUnsound);
  // A branch and its parent decide apart: a member takes decisions of the one that it is in.
  const bool named = frame.held.members.Contains(self());
  if (branch_ != (frame.branch ? frame.ballot : 0) || (frame.branch && !named))
    return Refuse(FrameRefusal::kOtherBranch);
  const Digest root = RootOf(frame.held.value);
  if (over_) {
    if (!Applied(over_->outcome)) return;
    if (root != over_->root)
      ++counts_.divergence;
    else if (frame.branch)
      JoinBranch(frame.ballot, frame.held.members, out);
    return;
  }
  if (target_) {
    if (root != RootOf(target_->held.value)) ++counts_.divergence;
    return;
  }
  if (frame.held.value.abort)
    return Conclude(Outcome::kAborted, {frame.ballot, frame.branch}, frame.held.members, out);
  Adopt(frame, out);
}

// Applied before the branch was decided: only the membership is news.
void Round::JoinBranch(Ballot ballot, RankSet members, RoundActions& out) {
  if (over_branch_ && over_->ballot == ballot) return;
  over_->ballot = ballot;
  over_->members = members;
  over_branch_ = true;
  out.push_back(BranchFormed{ballot, members, over_->root});
}

void Round::Adopt(const Decided& decided, RoundActions& out) {
  target_ = decided;
  ++progress_;
  if (coordination_) {  // those who answered the ballot wait for it no longer
    coordination_.reset();
    for (const auto& [peer, rank] : fixed_->rank_of)
      if (rank != self()) SendDecision(rank, out);
  }
  const RoundValue& value = decided.held.value;
  for (size_t rank = 0; rank < ranks(); ++rank)
    if (ContributorsOf(value).Contains(rank))
      stakes_[static_cast<uint8_t>(rank)] = value.stakes[rank];
  for (uint32_t c = 0; c < value.chunks.size(); ++c) {
    PlanChunk chunk;
    chunk.assigned = value.chunks[c].assigned;
    chunk.owner = assignments_[c].owner;
    chunk.holders = decided.held.members;
    chunk.value = value.chunks[c];
    Assign(ChunkIndex(c), chunk, out);
  }
  DropStale(out);
  RebuildLanes();
  FetchMissing(out);
  TryHave(out);
}

RankSet Round::TrustedHolders(const ChunkAssignment& assignment) const {
  return assignment.holders - suspected_ - left_ - own_rank();
}

// The value is decided, and nobody is left who could give all of it.
bool Round::HoldersDied() const {
  if (!target_) return false;
  // Silence is no proof, since a suspect may still answer. A broken connection and a BYE are.
  const RankSet gone = reset_ | left_ | own_rank();
  for (size_t c = 0; c < assignments_.size(); ++c)
    if (!slots_[c].held() && gone.ContainsAll(assignments_[c].holders)) return true;
  return false;
}

void Round::SetFetching(ChunkAssignment& assignment, int rank) {
  if (assignment.fetching >= 0) --fetches_[static_cast<size_t>(assignment.fetching)].out;
  if (rank >= 0) ++fetches_[static_cast<size_t>(rank)].out;
  assignment.fetching = rank;
}

// Asks for the finished results that are not here, spread over those who hold them.
void Round::FetchMissing(RoundActions& out) {
  if (over_ || missing_ == 0) return;
  for (Lane& lane : fetches_) lane = {.chunks = {}, .next = 0, .out = lane.out};
  for (uint32_t c = 0; c < assignments_.size(); ++c) {
    const ChunkAssignment& assignment = assignments_[c];
    if (slots_[c].held() || assignment.holders.empty() || assignment.fetching >= 0) continue;
    RankSet from = TrustedHolders(assignment);
    // The value is decided: a suspect that holds it is worth a try when there is nobody else.
    if (from.empty() && target_) from = assignment.holders - left_ - own_rank();
    if (from.empty()) continue;
    // fetch_turn_ moves on when an answer is late, so the next try goes to another holder.
    for (size_t turn = (c + static_cast<size_t>(self()) + fetch_turn_) % from.size(); turn > 0;
         --turn)
      from.Erase(from.first());
    fetches_[from.first()].chunks.push_back(ChunkIndex(c));
  }
  for (int rank = 0; rank < static_cast<int>(ranks()); ++rank) FetchFrom(rank, out);
}

// A window at a time. A request may be made again, by a plan or since its answer is late. On a thin
// link the answers to all of it would queue up once more, in front of all else.
void Round::FetchFrom(int holder, RoundActions& out) {
  Lane& lane = fetches_[static_cast<size_t>(holder)];
  std::vector<ChunkIndex> chunks;
  for (; lane.next < lane.chunks.size() && lane.out < windows_[static_cast<size_t>(holder)];
       ++lane.next) {
    const ChunkIndex chunk = lane.chunks[lane.next];
    ChunkAssignment& assignment = assignments_[chunk.value()];
    if (slots_[chunk.value()].held() || assignment.fetching >= 0) continue;
    SetFetching(assignment, holder);
    chunks.push_back(chunk);
  }
  if (!chunks.empty()) Emit(PeerAt(holder), Fetch{std::move(chunks)}, out);
}

}  // namespace crowdsurf::worker
