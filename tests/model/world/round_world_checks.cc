// The checkers of RoundWorld (statements S1 to S5 and L1 of docs/round.md), and the planted
// faults that must turn them red.
#include <cmath>

#include "tests/model/world/round_world.h"

namespace crowdsurf::worker::testing {

// All chunks but `but` of them hold something.
bool RoundWorld::SlotsFull(const RoundHost& host, size_t but) const {
  size_t empty = 0;
  for (uint32_t c = 0; c < chunks_.size(); ++c) {
    const double value = host.Slot(ChunkIndex(c))[0];
    if (value == 0.0 || value == RoundHost::kVoid) ++empty;
  }
  return empty <= but;
}

bool RoundWorld::QuorumLives() const {
  uint64_t live = 0;
  for (size_t i = 0; i < witnesses_.size(); ++i)
    if (dead_.count(witnesses_[i]) == 0) live |= uint64_t{1} << i;
  return IsQuorumOf(witnesses_.size(), live);
}

// ---- what the wire shows ----------------------------------------------------------------------
// Decisions are counted from frames: HAVE(0) of all members, ACCEPTED of a quorum.
void RoundWorld::Watch(const PeerId& from, const Payload& payload) {
  const auto* frame = std::get_if<Frame>(&payload);
  if (frame == nullptr) return;
  if (const auto* have = std::get_if<Have>(&frame->body); have != nullptr && have->ballot == 0) {
    const int rank = rank_of_.at(from);
    if (!have0_.emplace(rank, have->root).second) return;
    if (have0_.size() < rank_of_.size()) return;
    for (const auto& [other, root] : have0_)
      if (root != have->root) return;
    RankSet all;
    for (const auto& [peer, r] : rank_of_) all.Insert(r);
    CheckDecision(have->root, all);
  } else if (const auto* accept = std::get_if<Accept>(&frame->body)) {
    accepted_[{accept->ballot, Sha256(accept->value)}].second = accept->value;
  } else if (const auto* accepted = std::get_if<Accepted>(&frame->body)) {
    auto& [peers, value] = accepted_[{accepted->ballot, accepted->value}];
    peers.insert(from);
    uint64_t present = 0;
    for (size_t i = 0; i < witnesses_.size(); ++i)
      if (peers.count(witnesses_[i]) > 0) present |= uint64_t{1} << i;
    if (!IsQuorumOf(witnesses_.size(), present)) return;
    const std::optional<HeldValue> held = DecodeHeldValue(value);
    if (!held) return Fail("S3 something was accepted that nobody proposed");
    decided_value_ = held->value;
    CheckDecision(RootOf(held->value), held->members);
  }
}

// A value is decided now: S3 it is the only one, S4 every live member of its ballot holds it.
void RoundWorld::CheckDecision(const Digest& root, RankSet members) {
  if (decided_ && *decided_ != root) return Fail("S3 two values decided");
  decided_ = root;
  decided_members_ |= members;
  if (!decided_value_) return;
  for (const auto& [rank, host] : hosts_) {
    if (!members.Contains(rank) || dead_.count(TestPeer(rank)) > 0) continue;
    if (host->round.over()) continue;  // it applied, or gave the round up
    for (uint32_t c = 0; c < decided_value_->chunks.size(); ++c)
      if (HashOfValues(host->Slot(ChunkIndex(c))) != decided_value_->chunks[c].hash)
        return Fail("S4 a member of the deciding ballot does not hold the value");
  }
}

// ---- what members applied ---------------------------------------------------------------------
// S2: one complete value, once; S5: the mean of the masks, recomputed bit by bit.
void RoundWorld::CheckApplied(const RoundHost& host) {
  if (host.flips != 1) return Fail("S2 the flag flipped twice");
  RoundActions fetched;
  std::vector<ChunkIndex> all(chunks_.size());
  for (uint32_t c = 0; c < all.size(); ++c) all[c] = ChunkIndex(c);
  Round copy = host.round;  // its FETCH answers name the masks
  const PeerId asker = rank_of_.size() > 1 && rank_of_.begin()->second == host.self()
                           ? std::next(rank_of_.begin())->first
                           : rank_of_.begin()->first;
  copy.OnFrame(asker, {instance_, Fetch{all}}, fetched);
  if (fetched.size() != chunks_.size()) return Fail("S2 a chunk is missing");
  RankSet contributors;
  double weight = 0;
  for (const RoundAction& action : fetched) {
    const auto& result = std::get<SendResult>(action);
    const ChunkSpan& span = chunks_[result.chunk.value()];
    contributors |= result.mask;
    std::vector<std::vector<double>> rows;
    for (const auto& values : values_) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(span.begin);
      rows.emplace_back(begin, begin + span.count);
    }
    const std::vector<double> mean = FoldValues(result.mask, weights_, rows, span.count);
    for (size_t i = 0; i < mean.size(); ++i)
      if (mean[i] != host.applied[span.begin + i])
        return Fail("S5 what was applied is not the mean of its mask");
  }
  for (size_t r = 0; r < cells_.size(); ++r)
    if (contributors.Contains(r)) weight += weights_[r];
  if (contributors != host.outcome->contributors || weight != host.outcome->stake.weight)
    return Fail("S5 contributors or weight differ");
}

// The short answer to whom a round waits for is the long one, by rank.
void RoundWorld::CheckWaiting(const RoundHost& host) {
  const std::optional<RankSet> ranks = host.round.WaitingForMembers();
  if (!ranks) return;
  ++tally_.waiting_by_rank;
  std::set<PeerId> peers;
  for (const auto& [peer, rank] : rank_of_)
    if (ranks->Contains(static_cast<size_t>(rank))) peers.insert(peer);
  if (peers != host.round.WaitingFor()) Fail("it waits for others than it says by rank");
}

void RoundWorld::CheckEnd() {
  const RoundHost* first = nullptr;
  bool alive_applied = false, undone = false;
  for (const auto& [rank, host] : hosts_) {
    const bool alive = dead_.count(TestPeer(rank)) == 0;
    if (host->flips > 0) {
      if (first != nullptr && first->applied != host->applied)
        return Fail("S1 two members applied different bits");
      if (first != nullptr && first->outcome && host->outcome &&
          first->outcome->root != host->outcome->root)
        return Fail("S1 two members applied different roots");
      first = host.get();
      alive_applied = alive_applied || alive;
    }
    if (host->round.counts().divergence > 0) return Fail("S1 divergence counted");
    undone = undone || (alive && !host->round.over());
    if (!host->outcome) continue;
    if (!alive) continue;
    int* counters[] = {&tally_.fast, &tally_.repaired, &tally_.adopted,
                       &tally_.kept, &tally_.aborted,  &tally_.orphaned};
    ++*counters[static_cast<size_t>(host->outcome->outcome)];
    if (Applied(host->outcome->outcome) && host->outcome->contributors.size() == cells_.size())
      ++tally_.whole;
  }
  if (first != nullptr && first->outcome && decided_ && first->outcome->root != *decided_)
    return Fail("S3 applied something that was not decided");
  if (!QuorumLives()) {
    ++tally_.quorum_lost;
    return;
  }
  if (!undone) return;
  // The orphan: a value must be kept that no live member of its ballot is left to give.
  for (const auto& [rank, host] : hosts_)
    if (AcceptedMembers().Contains(rank) && dead_.count(TestPeer(rank)) == 0 &&
        (!host->round.over() || Applied(host->outcome->outcome)))
      return Fail("L1 a live member is left without the result");
  if (AcceptedMembers().empty() && !decided_) return Fail("L1 a live member is left undecided");
  ++tally_.orphaned;
}

// Members of the ballots that decided; while nothing is decided, of every ballot that some witness
// accepted.
RankSet RoundWorld::AcceptedMembers() const {
  RankSet members = decided_members_;
  if (decided_) return members;
  for (const auto& [key, entry] : accepted_) {
    if (entry.first.empty()) continue;
    if (const auto held = DecodeHeldValue(entry.second)) members |= held->members;
  }
  return members;
}

// ---- planted faults ---------------------------------------------------------------------------
// True: the payload is swallowed.
bool RoundWorld::Tamper(const PeerId& from, const PeerId& to, Payload& payload) {
  if (auto* result = std::get_if<ResultBytes>(&payload)) {
    if (options_.bug != Bug::kTwoMasks || result->assigned != 0) return false;
    const int rank = rank_of_.at(to);
    if (rank != hosts_.rbegin()->first || result->mask.size() < 2) return false;
    for (double& value : result->values) value += 1;
    result->hash = HashOfValues(result->values);
    return false;
  }
  auto* frame = std::get_if<Frame>(&payload);
  if (frame == nullptr) return false;
  if (TamperMore(from, to, *frame)) return true;
  const auto forge = [&](const PeerId& as, const PeerId& at, FrameBody body) {
    At(1, [this, as, at, forged = Frame{instance_, std::move(body)}] { Deliver(as, at, forged); });
  };
  if (auto* have = std::get_if<Have>(&frame->body)) {
    if (options_.bug == Bug::kTwoMasks && have->ballot == 0) {
      own_root_[from] = have->root;  // every receiver reads its own root
      have0_.clear();
      At(1, [this, from, to] {
        if (own_root_.count(to) > 0) Deliver(from, to, Frame{instance_, Have{0, own_root_.at(to)}});
      });
      At(300, [this, from, to] {
        if (own_root_.count(to) > 0) Deliver(from, to, Frame{instance_, Have{0, own_root_.at(to)}});
      });
      return true;
    }
    if (options_.bug == Bug::kFastOnMajority && have->ballot == 0) {
      heard_.insert(from);
      if (2 * heard_.size() > rank_of_.size())
        for (const auto& [peer, rank] : rank_of_)
          if (peer != to) forge(peer, to, *have);
    }
    if (options_.bug == Bug::kAcceptEarly && have->ballot > 0) {
      for (const auto& [peer, rank] : rank_of_)
        if (peer != to && peer != from) forge(peer, to, *have);
    }
  } else if (auto* promise = std::get_if<Promise>(&frame->body)) {
    if (options_.bug == Bug::kIgnoreAccepted) {
      promise->accepted = 0;
      promise->value.clear();
    }
  } else if (const auto* open = std::get_if<BallotOpen>(&frame->body)) {
    if (options_.bug == Bug::kIgnorePromises && tables_.count(to) > 0)
      forge(to, from, Promise{open->ballot, 0, {}});
  }
  return false;
}

}  // namespace crowdsurf::worker::testing
