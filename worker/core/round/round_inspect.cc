// What others may know of a Round: its phase, whom it waits for, its fingerprint.
#include <algorithm>

#include "base/digest.h"
#include "worker/core/round/round.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::worker {

bool Round::over() const { return over_.has_value(); }
Ballot Round::ballot() const { return record_.promised; }
Ballot Round::branch() const { return branch_; }
bool Round::all_ready() const { return ready_.ContainsAll(fixed_->members); }
bool Round::all_opened() const { return (spoken_ | own_rank()).ContainsAll(fixed_->members); }
bool Round::empty_handed() const {
  return !over_ && !target_ && missing_ == slots_.size() && plans_.empty() && branch_ == 0;
}
const RoundSpec& Round::spec() const { return fixed_->spec; }
const std::optional<RoundOver>& Round::outcome() const { return over_; }
WitnessRecord Round::Promised() const { return record_; }
const RoundCounts& Round::counts() const { return counts_; }
uint64_t Round::progress() const { return progress_ + ballot_progress_; }
uint64_t Round::advances() const { return progress_; }

std::set<PeerId> Round::Absent() const {
  std::set<PeerId> absent;
  for (const auto& [peer, rank] : fixed_->rank_of)
    if (!ready_.Contains(rank) && Trusts(rank)) absent.insert(peer);
  return absent;
}

bool Round::AwaitsSuspects() const {
  if (over_) return false;
  if (!target_) return orphan_;
  if (missing_ == 0) return false;
  return (target_->held.members - suspected_ - left_ - own_rank()).empty();
}

bool Round::Involves(const PeerId& peer) const {
  if (RankOf(peer) >= 0 || fixed_->witness_of.count(peer) > 0) return true;
  const std::vector<RoundCell>& cells = fixed_->spec.cells;
  return std::any_of(cells.begin(), cells.end(),
                     [&](const RoundCell& cell) { return cell.speakers.count(peer) > 0; });
}

bool Round::HasSpoken(const PeerId& peer) const {
  const int rank = RankOf(peer);
  return rank >= 0 && spoken_.Contains(static_cast<size_t>(rank));
}

Round::Phase Round::phase() const {
  if (over_) return Phase::kOver;
  if (target_) return Phase::kAdopting;
  if (record_.promised > 0) return Phase::kBallot;
  if (have0_) return Phase::kHeld;
  return all_ready() ? Phase::kReducing : Phase::kGathering;
}

bool Round::witness_quorum_lost() const {
  if (over_ || !coordination_ || coordination_->branch) return false;
  const std::vector<PeerId>& witnesses = fixed_->spec.witnesses;
  // An answer that is in counts, whatever became of its sender.
  uint64_t reachable = coordination_->accepting ? votes_ : coordination_->promised;
  for (size_t i = 0; i < witnesses.size(); ++i)
    if (!Distrusts(witnesses[i])) reachable |= uint64_t{1} << i;
  return !IsQuorumOf(witnesses.size(), reachable);
}

std::set<PeerId> Round::WaitingFor() const {
  std::set<PeerId> peers;
  AwaitOthers(peers);
  const RankSet members = AwaitedMembers();
  for (size_t rank = 0; rank < ranks(); ++rank)
    if (members.Contains(rank)) peers.insert(PeerAt(static_cast<int>(rank)));
  return peers;
}

std::optional<RankSet> Round::WaitingForMembers() const {
  std::set<PeerId> others;
  AwaitOthers(others);
  if (!others.empty()) return std::nullopt;
  return AwaitedMembers();
}

// Members that it waits for. This is asked at every chunk: it must not look at all of them.
RankSet Round::AwaitedMembers() const {
  if (over_) return {};
  RankSet awaited;
  for (size_t rank = 0; rank < fetches_.size(); ++rank)
    if (fetches_[rank].out > 0) awaited.Insert(rank);
  // Without a ballot: HAVE(0). In an own ballot: STATUS, then HAVE(b). In another's: its
  // coordinator, and the rest of S, whose results are missing, until the own HAVE is out.
  const RankSet in_plan = seen_ == record_.promised ? plan_members_ : RankSet();
  if (target_) {
    // What is fetched is all that it waits for.
  } else if (record_.promised == 0) {
    RankSet silent = fixed_->members;
    for (const auto& [rank, root] : haves0_) silent.Erase(rank);
    awaited |= silent;
  } else if (!coordination_) {
    awaited.Insert(static_cast<size_t>(CoordinatorOf(record_.promised)));
    if (have_sent_ != seen_) awaited |= in_plan;
  } else if (!coordination_->plan) {
    RankSet silent = fixed_->members;
    for (const auto& [rank, status] : coordination_->statuses) silent.Erase(rank);
    awaited |= silent;
  } else if (!coordination_->accepting) {
    awaited |= in_plan;
  }
  for (const auto& [peer, index] : fixed_->witness_of) {
    if (!AwaitsWitness(index)) continue;
    if (const int rank = RankOf(peer); rank >= 0) awaited.Insert(static_cast<size_t>(rank));
  }
  const RankSet absent = RankSet::FirstRanks(ranks()) - fixed_->members;
  return awaited - absent - suspected_ - left_ - own_rank();
}

// Stand-ins, and witnesses that are no members.
void Round::AwaitOthers(std::set<PeerId>& peers) const {
  if (over_ || target_) return;
  for (const auto& [speaker, inputs] : asked_.owing())
    if (!Distrusts(speaker)) peers.insert(speaker);
  AwaitSpeakers(peers);
  if (!coordination_) return;
  for (const auto& [peer, index] : fixed_->witness_of)
    if (RankOf(peer) < 0 && AwaitsWitness(index) && !Distrusts(peer)) peers.insert(peer);
}

// Its promise, or its vote, in the own ballot.
bool Round::AwaitsWitness(int index) const {
  if (over_ || target_ || !coordination_ || coordination_->branch) return false;
  if (coordination_->plan && !coordination_->accepting) return false;
  const uint64_t answered = coordination_->accepting ? votes_ : coordination_->promised;
  return (answered >> index & 1) == 0;
}

bool Round::MustReply(const PeerId& peer) const {
  if (RankOf(peer) >= 0) return true;
  const auto witness = fixed_->witness_of.find(peer);
  return witness != fixed_->witness_of.end() && AwaitsWitness(witness->second);
}

// Speakers that were greeted and have not answered, while an own chunk needs them.
void Round::AwaitSpeakers(std::set<PeerId>& peers) const {
  for (const auto& [rank, replies] : speaker_replies_) {
    if (!replies.greeted || !SpokenFor(rank)) continue;
    for (const PeerId& peer : fixed_->speakers[rank])
      if (replies.speaker.count(peer) == 0 && !Distrusts(peer) &&
          (!pending_.empty() || stakes_.count(rank) == 0))
        peers.insert(peer);
  }
}

namespace {

struct Printer {
  ByteWriter out;
  void Put(const Digest& digest) { out.Raw(digest.view()); }
  void Put(const ChunkValue& value) {
    out.U16(value.assigned);
    out.U64(value.mask.bits());
    out.U64(value.hash);
  }
  template <class Map>
  void Digests(const Map& map) {
    out.U32(static_cast<uint32_t>(map.size()));
    for (const auto& [key, digest] : map) {
      out.U16(key);
      Put(digest);
    }
  }
  void Body(const FrameBody& body) { out.Blob(EncodeFrame({InstanceId(), body})); }
};

}  // namespace

// Once over, only what later frames can still ask for matters.
uint64_t Round::FingerprintOver() const {
  Printer p;
  ByteWriter& out = p.out;
  for (const Ballot ballot : {over_->ballot, record_.promised, record_.accepted, branch_, seen_})
    out.U16(ballot);
  out.Blob(record_.value);
  out.U8(static_cast<uint8_t>(over_->outcome));
  out.Bool(over_branch_);
  out.U16(complete_ ? static_cast<uint16_t>(*complete_ + 1) : uint16_t{0});
  for (const RankSet ranks : {over_->members, ready_ | told_, plan_members_}) out.U64(ranks.bits());
  p.Put(over_->root);
  p.Digests(plans_);
  for (const ChunkIndex chunk : served_) out.U32(chunk.value());
  for (const ChunkValue& slot : slots_) p.Put(slot);
  return ContentHash(out.bytes(), 1);
}

uint64_t Round::Fingerprint() const {
  if (over_) return FingerprintOver();
  Printer p;
  ByteWriter& out = p.out;
  for (const RankSet ranks :
       {ready_, suspected_, reset_, left_, doubted_, plan_members_, excluded_, told_, anew_})
    out.U64(ranks.bits());
  out.U64(votes_);
  out.U64(early_);
  out.U64(filled_);
  for (const Ballot ballot :
       {highest_, seen_, have_sent_, branch_, record_.promised, record_.accepted})
    out.U16(ballot);
  out.Blob(record_.value);
  out.U32(fetch_turn_);
  for (const bool flag :
       {plan_abort_, complete_.has_value(), complete_abort_, orphan_, over_branch_,
        have0_.has_value(), over_.has_value(), target_.has_value(), coordination_.has_value()})
    out.Bool(flag);
  out.U16(complete_.value_or(0));
  p.Put(have_value_);
  if (have0_) p.Put(*have0_);
  p.Digests(haves0_);
  p.Digests(plans_);
  for (const PeerId& peer : distrusted_) out.Raw(peer.view());
  out.U64(own_word_.bits());
  for (const auto& [rank, stake] : stakes_) {
    out.U8(rank);
    Encode(stake, out);
  }
  for (const auto& [peer, speak] : late_speaks_) {
    out.Raw(peer.view());
    p.Body(speak);
  }
  FingerprintChunks(out);
  if (target_) p.Body(*target_);
  if (coordination_) {
    const Coordination& own = *coordination_;
    out.U16(own.ballot);
    out.Bool(own.branch);
    out.Bool(own.accepting);
    out.U64(own.promised);
    out.U16(own.accepted);
    if (own.accepted_value) out.Blob(EncodeHeldValue(*own.accepted_value));
    for (const auto& [rank, status] : own.statuses) {
      out.U8(rank);
      p.Body(status);
    }
    if (own.plan) p.Body(*own.plan);
    p.Digests(own.haves);
  }
  return ContentHash(out.bytes(), 0);
}

void Round::FingerprintChunks(ByteWriter& out) const {
  Printer p;
  for (size_t c = 0; c < assignments_.size(); ++c) {
    const ChunkAssignment& assignment = assignments_[c];
    p.Put(slots_[c]);
    p.Put(assignment.want);
    p.out.U16(assignment.assigned);
    p.out.U8(assignment.owner);
    p.out.U64(assignment.holders.bits());
    p.out.Bool(assignment.sent_first);
    p.out.Bool(assignment.sent_again);
    p.out.U64(assignment.given.bits());
    p.out.U32(static_cast<uint32_t>(assignment.fetching));
  }
  for (const Lane& lane : lanes_) {
    p.out.U64(lane.next);
    p.out.U32(lane.out);
  }
  for (const uint32_t window : windows_) p.out.U32(window);
  for (const Lane& lane : fetches_) {
    for (size_t i = lane.next; i < lane.chunks.size(); ++i) p.out.U32(lane.chunks[i].value());
    p.out.U32(~uint32_t{0});
  }
  p.out.U64(follow_.bits());
  for (const ChunkIndex chunk : pending_) p.out.U32(chunk.value());
  // Marks end lists of any length: without them two states could print the same bytes.
  p.out.U32(~uint32_t{0});
  for (const ChunkIndex chunk : served_) p.out.U32(chunk.value());
  p.out.U32(~uint32_t{0});
  for (const auto& [key, inputs] : inputs_) {
    if ((inputs.in | inputs.bad | inputs.folding).empty()) continue;
    p.out.U32(key.first.value());
    p.out.U16(key.second);
    p.out.U64(inputs.in.bits());
    p.out.U64(inputs.own.bits());
    p.out.U64(inputs.bad.bits());
    p.out.U64(inputs.folding.bits());
  }
  p.out.U32(~uint32_t{0});
  for (const auto& [key, request] : asked_.requests()) {
    p.out.U32(key.first.value());
    p.out.U8(key.second);
    p.out.Raw(request.speaker.view());
    p.out.U16(request.assigned);
  }
  for (const auto& [rank, replies] : speaker_replies_) {
    p.out.U8(rank);
    p.out.Bool(replies.greeted);
    if (replies.root) p.Put(*replies.root);
    for (const auto& [peer, same] : replies.speaker) {
      p.out.Raw(peer.view());
      p.out.Bool(same);
    }
  }
  out.Raw(p.out.bytes());
}

}  // namespace crowdsurf::worker
