#include "worker/core/round/round_frames.h"

#include <algorithm>

#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

Digest HashAssignment(bool abort, const std::vector<Ballot>& assigned) {
  ByteWriter out;
  out.Bool(abort);
  for (const Ballot ballot : assigned) out.U16(ballot);
  return Sha256(out.bytes());
}

// All of them step from one base, or nobody does.
Digest BaseOf(const RoundValue& value) {
  const RankSet contributors = ContributorsOf(value);
  std::optional<Digest> base;
  for (size_t rank = 0; rank < value.stakes.size(); ++rank) {
    if (!contributors.Contains(rank)) continue;
    if (!base) base = value.stakes[rank].base;
    if (value.stakes[rank].base != *base) return {};
  }
  return base.value_or(Digest());
}

}  // namespace

RankSet ContributorsOf(const RoundValue& value) {
  RankSet all;
  for (const ChunkValue& chunk : value.chunks) all |= chunk.mask;
  return all;
}

RankSet CountedOf(const RoundValue& value, const std::vector<RankSet>& coverers) {
  RankSet partly;  // contributors that a chunk lacks
  const RankSet all = ContributorsOf(value);
  for (size_t c = 0; c < value.chunks.size(); ++c)
    partly |= (coverers.empty() ? all : all & coverers[c]) - value.chunks[c].mask;
  RankSet counted = all;
  for (size_t rank = 0; rank < value.stakes.size(); ++rank)
    if (partly.Contains(rank) && !value.stakes[rank].claims.claims.empty()) counted.Erase(rank);
  return counted;
}

Stake StakeOf(const RoundValue& value, const std::vector<RankSet>& coverers) {
  Stake sum;
  sum.base = BaseOf(value);
  const RankSet counted = CountedOf(value, coverers);
  // In rank order, so that the sums have the same bits at all members.
  for (size_t rank = 0; rank < value.stakes.size(); ++rank) {
    const Stake& stake = value.stakes[rank];
    sum.weight += stake.weight;
    sum.before = std::max(sum.before, stake.before);
    Add(stake.age, sum.age);
    ClaimSet claims = stake.claims;
    if (counted.Contains(rank))
      sum.samples += stake.samples;
    else
      claims.claims.clear();  // which ledger it has counts all the same
    Merge(claims, sum.claims);
  }
  return sum;
}

Digest RootOf(const RoundValue& value) {
  ByteWriter out;
  out.Bool(value.abort);
  out.U32(static_cast<uint32_t>(value.chunks.size()));
  for (const ChunkValue& chunk : value.chunks) {
    out.U16(chunk.assigned);
    out.U64(chunk.mask.bits());
    out.U64(chunk.hash);
  }
  for (const Stake& stake : value.stakes) Encode(stake, out);
  return Sha256(out.bytes());
}

bool ImpliesOpened(const FrameBody& body) {
  const bool witness =
      std::holds_alternative<Promise>(body) || std::holds_alternative<Accepted>(body) ||
      std::holds_alternative<Refused>(body) || std::holds_alternative<Forgotten>(body);
  return !witness && !std::holds_alternative<Bye>(body);
}

Digest AssignmentHash(const Plan& plan) {
  std::vector<Ballot> assigned;
  for (const PlanChunk& chunk : plan.chunks) assigned.push_back(chunk.assigned);
  return HashAssignment(plan.abort, assigned);
}

Digest AssignmentHash(const RoundValue& value) {
  std::vector<Ballot> assigned;
  for (const ChunkValue& chunk : value.chunks) assigned.push_back(chunk.assigned);
  return HashAssignment(value.abort, assigned);
}

}  // namespace crowdsurf::worker
