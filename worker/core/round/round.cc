#include "worker/core/round/round.h"

#include <algorithm>

#include "base/check.h"
#include "base/digest.h"
#include "base/overloaded.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::worker {

bool Applied(Outcome outcome) {
  return outcome == Outcome::kFast || outcome == Outcome::kRepaired || outcome == Outcome::kAdopted;
}

const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kFast:
      return "fast";
    case Outcome::kRepaired:
      return "repaired";
    case Outcome::kAdopted:
      return "adopted";
    case Outcome::kKept:
      return "kept";
    case Outcome::kAborted:
      return "aborted";
    case Outcome::kOrphaned:
      return "orphaned";
    case Outcome::kLeft:
      return "left";
  }
  return "";
}

Round::Round(RoundSpec spec, PlanRule rule) {
  auto fixed = std::make_shared<Fixed>();
  CHECK(!spec.cells.empty() && spec.cells.size() <= kMaxRanks);
  CHECK(spec.self >= 0 && static_cast<size_t>(spec.self) < spec.cells.size());
  CHECK(spec.cells[static_cast<size_t>(spec.self)].member.has_value());
  CHECK(worker::IsValid(spec.stake));
  CHECK(!spec.chunks.empty() && spec.chunks.size() <= kMaxChunks);
  CHECK(spec.coverers.empty() || spec.coverers.size() == spec.chunks.size());
  CHECK_LE(spec.witnesses.size(), size_t{64});
  CHECK(spec.window_chunks > 0 && spec.window_chunks <= spec.max_window_chunks);
  fixed->rule = rule;
  fixed->self = *spec.cells[static_cast<size_t>(spec.self)].member;
  for (size_t rank = 0; rank < spec.cells.size(); ++rank) {
    const RoundCell& cell = spec.cells[rank];
    fixed->speakers.emplace_back(cell.speakers.begin(), cell.speakers.end());
    if (!cell.member) continue;
    fixed->members.Insert(rank);
    CHECK(fixed->rank_of.emplace(*cell.member, static_cast<int>(rank)).second);
  }
  for (size_t i = 0; i < spec.witnesses.size(); ++i) {
    CHECK(fixed->witness_of.emplace(spec.witnesses[i], static_cast<int>(i)).second);
    if (spec.witnesses[i] == fixed->self) fixed->witness = static_cast<int>(i);
  }
  for (const ChunkSpan& chunk : spec.chunks) {
    CHECK(chunk.owner < spec.cells.size() && fixed->members.Contains(chunk.owner));
    ChunkAssignment assignment;
    assignment.owner = static_cast<uint8_t>(chunk.owner);
    if (assignment.owner == spec.self)
      pending_.insert(ChunkIndex(static_cast<uint32_t>(assignments_.size())));
    assignments_.push_back(assignment);
  }
  fixed->member_list = MemberListHash(spec.cells);
  fixed->parts = PartsHash(spec.chunks, spec.coverers, spec.one_base);
  filled_ = std::min(spec.filled, spec.chunks.size());
  slots_.resize(spec.chunks.size());
  fetches_.resize(spec.cells.size());
  missing_ = slots_.size();
  windows_.assign(spec.cells.size(), spec.window_chunks);
  ready_ = RankSet::Of(spec.self);
  stakes_[static_cast<uint8_t>(spec.self)] = spec.stake;
  own_word_ = ready_;
  record_ = spec.promised;
  fixed->spec = std::move(spec);
  fixed_ = std::move(fixed);
  RebuildLanes();
}

Ready Round::OwnReady() const {
  return {fixed_->spec.stake, fixed_->spec.schema, fixed_->member_list, fixed_->parts, false};
}

void Round::Start(RoundActions& out) {
  Ready ready = OwnReady();
  ready.again = fixed_->spec.again;
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (rank != self()) Emit(peer, ready, out);
  ContactSpeakers(out);
  if (record_.promised > 0) {  // as a witness, before this round was opened: that ballot is on
    const int coordinator = CoordinatorOf(record_.promised);
    if (coordinator != self() && fixed_->members.Contains(coordinator))
      Emit(PeerAt(coordinator), MakeStatus({record_.promised}), out);
  }
  TryFoldAll(out);
  TryHave(out);
  Drain(out);
}

int Round::RankOf(const PeerId& peer) const {
  const auto it = fixed_->rank_of.find(peer);
  return it == fixed_->rank_of.end() ? -1 : it->second;
}

bool Round::Trusts(int rank) const { return (fixed_->members - suspected_ - left_).Contains(rank); }

bool Round::Distrusts(const PeerId& peer) const {
  const int rank = RankOf(peer);
  return rank >= 0 ? !Trusts(rank) : distrusted_.count(peer) > 0;
}

// Frames to itself wait for Drain, so no handler runs inside another one.
void Round::Emit(const PeerId& to, FrameBody body, RoundActions& out) {
  if (to == fixed_->self)
    local_.push_back(std::move(body));
  else
    out.push_back(SendFrame{to, {fixed_->spec.instance, std::move(body)}});
}

void Round::OnFrame(const PeerId& from, const Frame& frame, RoundActions& out) {
  if (frame.instance != fixed_->spec.instance) return Refuse(FrameRefusal::kInstance);
  if (const int rank = RankOf(from); rank >= 0 && ImpliesOpened(frame.body))
    spoken_.Insert(static_cast<size_t>(rank));
  Dispatch(from, frame.body, out);
  Drain(out);
}

void Round::Dispatch(const PeerId& from, const FrameBody& body, RoundActions& out) {
  std::visit(Overloaded{[&](const Ready& frame) { OnReady(from, frame, out); },
                        [&](const Fetch& frame) { OnFetch(from, frame, out); },
                        [&](const Ask& frame) { OnAsk(from, frame, out); },
                        [&](const Speak& frame) { OnSpeak(from, frame, out); },
                        [&](const Have& frame) { OnHave(from, frame, out); },
                        [&](const BallotOpen& frame) { OnBallotOpen(from, frame, out); },
                        [&](const Accept& frame) { OnAccept(from, frame, out); },
                        [&](const Accepted& frame) { OnAccepted(from, frame, out); },
                        [&](const Bye& frame) { OnBye(from, frame, out); },
                        [&](const Beat& frame) { HearBeat(from, frame); },
                        [&](const Plan& frame) { OnPlan(from, frame, out); },
                        [&](const Decided& frame) { OnDecided(from, frame, out); },
                        [&](const StatusFrame& frame) { OnStatus(from, frame, out); },
                        [&](const Promise& frame) { OnPromise(from, frame, out); },
                        [&](const Refused& frame) { OnRefused(from, frame, out); },
                        [&](const Forgotten& frame) { OnForgotten(from, frame, out); }},
             body);
}

void Round::Drain(RoundActions& out) {
  while (!local_.empty()) {
    std::vector<FrameBody> frames;
    frames.swap(local_);
    for (const FrameBody& body : frames) Dispatch(fixed_->self, body, out);
  }
}

// The decided value, to somebody who does not have it.
void Round::SendDecision(int rank, RoundActions& out) {
  if (target_) {
    Emit(PeerAt(rank), *target_, out);
    return;
  }
  if (!over_) return;
  std::optional<RoundValue> value;
  if (over_->outcome == Outcome::kAborted) {
    value = RoundValue();
    value->abort = true;
  } else if (Applied(over_->outcome)) {
    value = CurrentValue();
  }
  if (value)
    Emit(PeerAt(rank), Decided{over_->ballot, over_branch_, {over_->members, *value}}, out);
}

// nullopt while the stake of a contributor is not known. Empty slots count as they are.
std::optional<RoundValue> Round::CurrentValue() const {
  RoundValue value;
  value.chunks = slots_;
  value.stakes.assign(ranks(), {});
  const RankSet all = ContributorsOf(value);
  for (size_t rank = 0; rank < ranks(); ++rank) {
    if (!all.Contains(rank)) continue;
    const auto stake = stakes_.find(static_cast<uint8_t>(rank));
    if (stake == stakes_.end()) return std::nullopt;
    value.stakes[rank] = stake->second;
  }
  return value;
}

// Pre: the slots hold the decided value (when it is not ABORT).
void Round::Conclude(Outcome outcome, BallotName by, RankSet members, RoundActions& out) {
  RoundOver over{outcome, by.ballot, {}, {}, {}, members};
  if (Applied(outcome)) {
    const std::optional<RoundValue> value = CurrentValue();
    CHECK(value.has_value());
    over.stake = StakeOf(*value, fixed_->spec.coverers);
    over.root = RootOf(*value);
    over.contributors = ContributorsOf(*value);
    over.counted = CountedOf(*value, fixed_->spec.coverers);
    for (const ChunkAssignment& assignment : assignments_) {
      if (assignment.assigned != 0)
        ++counts_.chunks_reduced_again;
      else if (!assignment.holders.empty())
        ++counts_.chunks_adopted;
      else
        ++counts_.chunks_first;
    }
  }
  target_.reset();
  over_ = over;
  over_branch_ = by.branch;
  out.push_back(over);
  if (by.branch && members.Contains(self()))
    out.push_back(BranchFormed{by.ballot, members, over.root});
  pending_.clear();
  inputs_.clear();
  asked_.Clear();
  if (!coordination_) return;
  coordination_.reset();
  // The members of the own ballot wait for this member, and are told what came of it.
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (rank != self()) SendDecision(rank, out);
}

// BYE spares the others the silence after which they would suspect this member.
void Round::GiveUp(Outcome outcome, ByeReason reason, RoundActions& out) {
  coordination_.reset();
  target_.reset();
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (rank != self()) Emit(peer, Bye{reason}, out);
  Conclude(outcome, {record_.promised}, {}, out);
}

void Round::OnSitOut(RoundActions& out) {
  if (over_) return;
  // A decided value that nobody is left to give is an orphan too.
  const bool orphan = orphan_ || target_.has_value();
  GiveUp(orphan ? Outcome::kOrphaned : Outcome::kKept, ByeReason::kSatOut, out);
  Drain(out);
}

void Round::OnLeave(RoundActions& out) {
  if (over_) return;
  GiveUp(Outcome::kKept, ByeReason::kLeaving, out);
  Drain(out);
}

void Round::OnBeat(const std::set<PeerId>& hear, RoundActions& out) {
  if (over_) return;
  const Beat beat{static_cast<uint32_t>(missing_)};
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (rank != self() && !left_.Contains(rank) && !hear.contains(peer)) Emit(peer, beat, out);
  if (target_) return;
  // It has opened the round, and says READY once. A READY is lost where its receiver had to drop
  // what came early.
  const RankSet unready = spoken_ - ready_ - left_ - own_rank();
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (unready.Contains(rank)) Emit(peer, Ask{static_cast<uint8_t>(rank), 0, {}}, out);
}

// Who holds all that it can wait for sees nothing come: what the others get shows that it goes on.
void Round::HearBeat(const PeerId& from, const Beat& frame) {
  const int rank = RankOf(from);
  if (rank < 0) return Refuse(FrameRefusal::kStranger);
  // Within what there is to lack: no word of it prolongs a round without end.
  const auto missing = static_cast<uint32_t>(std::min<size_t>(frame.missing, slots_.size()));
  const auto [least, fresh] = lacking_.emplace(static_cast<uint8_t>(rank), missing);
  if (fresh || missing >= least->second) return;
  least->second = missing;
  ++progress_;
}

}  // namespace crowdsurf::worker
