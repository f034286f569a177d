// The data side of a Round: READY, inputs, folds, results, HAVE(0).
#include "worker/core/round/round.h"

namespace crowdsurf::worker {

// It had dropped the round and opens it again (group_rounds.h, Suspend): it has nothing of what it
// was sent. Once for each: a copy of a frame looks the same.
void Round::StartsAnew(int rank, RoundActions& out) {
  if ((anew_ | left_).Contains(rank)) return Refuse(FrameRefusal::kReadyTwice);
  anew_.Insert(rank);
  Emit(PeerAt(rank), OwnReady(), out);
  if (seen_ > 0) return;  // plans ask for what is missing
  for (size_t c = 0; c < assignments_.size(); ++c)
    if (assignments_[c].owner == rank && !slots_[c].held()) assignments_[c].sent_first = false;
  RebuildLanes();
  SendInputs(rank, out);
}

void Round::OnReady(const PeerId& from, const Ready& frame, RoundActions& out) {
  const int rank = RankOf(from);
  if (rank < 0) return Refuse(FrameRefusal::kStranger);
  if (over_ || target_) {
    const bool late = (!ready_.Contains(rank) || frame.again) && !told_.Contains(rank);
    told_.Insert(rank);
    if (late) SendDecision(rank, out);
    return;
  }
  if (ready_.Contains(rank))
    return frame.again ? StartsAnew(rank, out) : Refuse(FrameRefusal::kReadyTwice);
  const bool others = frame.parts != fixed_->parts || !SameBase(frame.stake);
  if (fixed_->spec.leaves_when_behind && others && worker::IsValid(frame.stake) && IsBehind(frame))
    return GiveUp(Outcome::kLeft, ByeReason::kSatOut, out);
  const bool fits = frame.schema == fixed_->spec.schema && frame.members == fixed_->member_list &&
                    !others && worker::IsValid(frame.stake);
  if (!fits) {
    Refuse(FrameRefusal::kReadyUnfit);
    left_.Insert(rank);
    return SuspectRank(rank, SuspicionCause::kMismatch, out);
  }
  ready_.Insert(rank);
  ++progress_;
  // Its stand-ins have said another stake already: its own values do not go with that one.
  const bool spoken = stakes_.count(static_cast<uint8_t>(rank)) > 0;
  // What STATUS said of stakes holds until the plan that follows from it.
  const bool frozen = record_.promised > seen_ && !spoken;
  if (!frozen &&
      stakes_.emplace(static_cast<uint8_t>(rank), frame.stake).first->second == frame.stake)
    own_word_.Insert(rank);
  SendInputs(rank, out);
  if (spoken && own_word_.Contains(rank)) AskMember(rank, out);  // what came sooner was refused
  TryFoldAll(out);
  TryHave(out);
}

// Where members cover different coordinates, what nobody covers is the base's: of one base. So are
// gradients, and changes.
bool Round::SameBase(const Stake& stake) const {
  const bool any = fixed_->spec.coverers.empty() && !fixed_->spec.one_base;
  return any || stake.base == fixed_->spec.stake.base;
}

// The other one has the later base, or, of two at one count, the one that all take.
bool Round::IsBehind(const Ready& other) const {
  const Stake& own = fixed_->spec.stake;
  if (own.before != other.stake.before) return own.before < other.stake.before;
  if (own.base.none() != other.stake.base.none()) return own.base.none();
  return other.stake.base < own.base;
}

// ---- others' inputs ---------------------------------------------------------------------------
// `from` may send inputs of `rank`.
bool Round::Offers(const PeerId& from, int rank) const {
  if (rank < 0 || rank >= static_cast<int>(ranks())) return false;
  // Vector and stake travel together: its own values do not go with what a stand-in said it is
  // worth.
  if (RankOf(from) == rank)
    return own_word_.Contains(rank) || stakes_.count(static_cast<uint8_t>(rank)) == 0;
  const auto voices = speaker_replies_.find(static_cast<uint8_t>(rank));
  if (voices == speaker_replies_.end()) return false;
  const auto voice = voices->second.speaker.find(from);
  return voice != voices->second.speaker.end() && voice->second;
}

bool Round::OnInput(const PeerId& from, int rank, ChunkIndex chunk, Ballot assigned,
                    RoundActions& out) {
  const auto refuse = [this](FrameRefusal reason) {
    Refuse(reason);
    return false;
  };
  if (over_ || target_) return refuse(FrameRefusal::kInputLate);
  if (chunk.value() >= assignments_.size() || !Offers(from, rank) || !Covers(rank, chunk))
    return refuse(FrameRefusal::kInputStranger);
  const ChunkAssignment& assignment = assignments_[chunk.value()];
  if (assigned == assignment.assigned) {
    if (pending_.count(chunk) == 0) return refuse(FrameRefusal::kInputLate);
  } else {
    // The plan that makes this peer the owner may still be on its way.
    // As much as honest senders send ahead of results: a least window from each rank (WindowTo).
    const size_t bound = ranks() * fixed_->spec.window_chunks;
    if (assigned <= seen_ || assigned < record_.promised)
      return refuse(FrameRefusal::kInputSuperseded);
    if (early_ >= bound) return refuse(FrameRefusal::kInputEarly);
  }
  Gathering& inputs = inputs_[{chunk, assigned}];
  if (!inputs.folding.empty() || (inputs.in | inputs.bad).Contains(rank))
    return refuse(FrameRefusal::kInputTwice);
  inputs.in.Insert(rank);
  if (RankOf(from) == rank) {
    inputs.own.Insert(rank);
    spoken_.Insert(static_cast<size_t>(rank));
  }
  ++progress_;
  if (assigned != assignment.assigned) {
    ++early_;
    return true;
  }
  TryFold(chunk, out);
  Drain(out);
  return true;
}

void Round::OnBadInput(const PeerId& from, int rank, ChunkIndex chunk, Ballot assigned,
                       RoundActions& out) {
  if (over_ || target_ || chunk.value() >= assignments_.size() || !Offers(from, rank) ||
      !Covers(rank, chunk) || assigned != assignments_[chunk.value()].assigned ||
      pending_.count(chunk) == 0)
    return Refuse(FrameRefusal::kInputStranger);
  Gathering& inputs = inputs_[{chunk, assigned}];
  if (!inputs.folding.empty() || inputs.in.Contains(rank)) return Refuse(FrameRefusal::kInputTwice);
  inputs.bad.Insert(rank);
  ++counts_.bad_inputs;
  TryFold(chunk, out);
  Drain(out);
}

// ---- folding ----------------------------------------------------------------------------------
// Adds `rank` to the contributors if it is one. False: something of it is still to come.
bool Round::Contribution(ChunkIndex chunk, const Gathering& inputs, int rank,
                         RankSet& contributors) {
  if (!Covers(rank, chunk)) return true;
  if (rank == self()) {
    contributors.Insert(rank);
    return HasOwn(chunk);
  }
  if ((inputs.bad | excluded_).Contains(rank)) return true;
  const bool member = fixed_->members.Contains(rank);
  const bool awaited = member && Trusts(rank) && (seen_ == 0 || plan_members_.Contains(rank));
  if (inputs.in.Contains(rank)) {
    const bool known = stakes_.count(static_cast<uint8_t>(rank)) > 0;
    // Its own values with a stake that a stand-in told: they do not go together.
    const bool others_word = (inputs.own - own_word_).Contains(rank);
    if (known && !others_word) contributors.Insert(rank);
    // A member that is awaited may still say its stake with READY.
    return known || !awaited;
  }
  if (awaited) return false;
  if (SpokenFor(rank)) return !SpeakerLeft(rank);
  // A member that was lost before any plan: stand-ins may speak for it once a plan says so.
  return !member || fixed_->speakers[static_cast<size_t>(rank)].empty() || seen_ > 0;
}

// A chunk that no other member has inputs for could be folded at once. Its result would be lost at
// a member that has not opened the round yet.
bool Round::AwaitsReady() const {
  if (fixed_->spec.coverers.empty() || seen_ > 0) return false;
  return !(fixed_->members - suspected_ - left_ - ready_).empty();
}

void Round::TryFold(ChunkIndex chunk, RoundActions& out) {
  if (over_ || target_ || pending_.count(chunk) == 0) return;
  const ChunkAssignment& assignment = assignments_[chunk.value()];
  if (AwaitsReady()) return;
  Gathering& inputs = inputs_[{chunk, assignment.assigned}];
  if (!inputs.folding.empty()) return;
  RankSet contributors;
  for (int rank = 0; rank < static_cast<int>(ranks()); ++rank)
    if (!Contribution(chunk, inputs, rank, contributors)) return;
  if (contributors.empty()) contributors.Insert(self());  // nobody is left that covers it
  for (size_t rank = 0; rank < ranks(); ++rank) {
    const bool hole = !fixed_->members.Contains(rank);
    if (hole && !fixed_->speakers[rank].empty() && !contributors.Contains(rank))
      ++counts_.holes_silent;
  }
  inputs.folding = contributors;
  FoldChunk fold{chunk, assignment.assigned, contributors, std::vector<double>(ranks(), 0.0)};
  for (size_t rank = 0; rank < ranks(); ++rank)
    if (contributors.Contains(rank))
      fold.weights[rank] = stakes_.at(static_cast<uint8_t>(rank)).weight;
  out.push_back(std::move(fold));
}

void Round::TryFoldAll(RoundActions& out) {
  const std::set<ChunkIndex> pending = pending_;
  for (const ChunkIndex chunk : pending) TryFold(chunk, out);
}

void Round::OnFolded(ChunkIndex chunk, Ballot assigned, uint64_t hash, RoundActions& out) {
  const auto inputs = inputs_.find({chunk, assigned});
  if (over_ || target_ || inputs == inputs_.end() || inputs->second.folding.empty() ||
      assignments_[chunk.value()].assigned != assigned)
    return Refuse(FrameRefusal::kFoldSuperseded);
  const ChunkValue value{assigned, inputs->second.folding, hash};
  inputs_.erase(inputs);
  pending_.erase(chunk);
  asked_.EraseChunk(chunk);
  if (assigned == 0) served_.insert(chunk);
  Give(chunk, value, out);
  FillSlot(chunk, value, out);
  Drain(out);
}

// The own result of a chunk, to the members that it was not sent to. Suspects are left out: one
// that turns out to be alive is given it then, or with the plan that names it.
void Round::Give(ChunkIndex chunk, const ChunkValue& value, RoundActions& out) {
  RankSet& given = assignments_[chunk.value()].given;
  for (const auto& [peer, rank] : fixed_->rank_of) {
    const bool in_plan = seen_ == 0 || plan_members_.Contains(rank);
    if (rank == self() || !Trusts(rank) || !in_plan || given.Contains(rank)) continue;
    given.Insert(rank);
    out.push_back(SendResult{peer, chunk, value.assigned, value.mask, value.hash});
  }
}

void Round::GiveAll(RoundActions& out) {
  if (over_ || target_) return;
  for (uint32_t c = 0; c < assignments_.size(); ++c) {
    const bool own = assignments_[c].owner == self() && assignments_[c].holders.empty();
    if (own && slots_[c].held()) Give(ChunkIndex(c), slots_[c], out);
  }
}

// ---- results ----------------------------------------------------------------------------------
void Round::OnResult(const PeerId& from, ChunkIndex chunk, const ChunkValue& value,
                     RoundActions& out) {
  const int rank = RankOf(from);
  if (over_) return Refuse(FrameRefusal::kResultLate);
  if (rank < 0 || chunk.value() >= assignments_.size() || !value.held())
    return Refuse(FrameRefusal::kResultStranger);
  const ChunkAssignment& assignment = assignments_[chunk.value()];
  if (slots_[chunk.value()].held()) return Refuse(FrameRefusal::kResultTwice);
  if (assignment.assigned != value.assigned) return Refuse(FrameRefusal::kResultSuperseded);
  // An adopted result must be that very one; a new one must come from its owner.
  if (!assignment.holders.empty() ? value != assignment.want : rank != assignment.owner)
    return Refuse(FrameRefusal::kResultUnplanned);
  if (value.assigned == seen_ && assignment.holders.empty()) follow_.Insert(rank);
  out.push_back(StoreResult{chunk, value.assigned});
  FillSlot(chunk, value, out);
  Drain(out);
}

void Round::FillSlot(ChunkIndex chunk, const ChunkValue& value, RoundActions& out) {
  ChunkAssignment& assignment = assignments_[chunk.value()];
  slots_[chunk.value()] = value;
  --missing_;
  ++progress_;
  if (const int holder = assignment.fetching; holder >= 0) {
    SetFetching(assignment, -1);
    const auto of = static_cast<size_t>(holder);
    if (2 * fetches_[of].out <= windows_[of]) FetchFrom(holder, out);
  }
  const bool sent = assignment.assigned == 0 ? assignment.sent_first : assignment.sent_again;
  if (assignment.holders.empty() && assignment.owner != self() && sent) {
    Lane& lane = lanes_[assignment.owner];
    if (lane.out > 0) --lane.out;
    SendInputs(assignment.owner, out);
  }
  TryHave(out);
}

// Also after the round is over: stragglers fetch from members that applied.
void Round::OnFetch(const PeerId& from, const Fetch& frame, RoundActions& out) {
  if (RankOf(from) < 0) return Refuse(FrameRefusal::kStranger);
  if (over_ && !Applied(over_->outcome)) return Refuse(FrameRefusal::kFetchVoid);
  for (const ChunkIndex chunk : frame.chunks) {
    if (chunk.value() >= slots_.size() || !slots_[chunk.value()].held()) {
      Refuse(FrameRefusal::kFetchUnheld);
      continue;
    }
    const ChunkValue& slot = slots_[chunk.value()];
    out.push_back(SendResult{from, chunk, slot.assigned, slot.mask, slot.hash});
  }
}

// ---- all there --------------------------------------------------------------------------------
// Called whenever a slot, a weight or the ballot changed.
void Round::TryHave(RoundActions& out) {
  if (over_) return;
  if (target_) {
    if (missing_ > 0) return;
    const Decided decided = *target_;
    const bool named = decided.held.members.Contains(self());
    const Outcome outcome = decided.ballot == 0 ? Outcome::kFast
                            : named             ? Outcome::kRepaired
                                                : Outcome::kAdopted;
    return Conclude(outcome, {decided.ballot, decided.branch}, decided.held.members, out);
  }
  const bool repair = seen_ > 0;
  if (repair && plan_abort_) return;  // its HAVE went out with the plan
  // HAVE once for each plan, and HAVE(0) only while no ballot was answered.
  if (missing_ > 0 || (repair ? seen_ != record_.promised || have_sent_ == seen_
                              : record_.promised > 0 || have0_.has_value()))
    return TryFast(out);
  const std::optional<RoundValue> value = CurrentValue();
  if (!value) return;
  const Digest root = RootOf(*value);
  complete_ = seen_;
  complete_abort_ = false;
  if (repair) return SendHave({plan_members_, *value}, out);
  have0_ = root;
  for (const auto& [peer, rank] : fixed_->rank_of) Emit(peer, Have{0, root}, out);
}

// Equal roots from all: decided, whatever ballots have been opened since. The slots must still be
// what the HAVE was about (a plan may have emptied them; then the fast value was not decided).
void Round::TryFast(RoundActions& out) {
  if (over_ || target_ || branch_ != 0 || !have0_ || missing_ > 0 || !complete_ || complete_abort_)
    return;
  for (const auto& [peer, rank] : fixed_->rank_of) {
    const auto have = haves0_.find(static_cast<uint8_t>(rank));
    if (have == haves0_.end() || have->second != *have0_) return;
  }
  const std::optional<RoundValue> value = CurrentValue();
  if (!value || RootOf(*value) != *have0_) return;
  Conclude(Outcome::kFast, {}, fixed_->members, out);
}

}  // namespace crowdsurf::worker
