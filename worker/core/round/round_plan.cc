#include "worker/core/round/round_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/digest.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {
namespace {

RankSet RanksOf(const PlanQuestion& q) {
  RankSet ranks;
  for (const auto& [rank, status] : q.statuses) ranks.Insert(rank);
  return ranks;
}

// All stakes that S knows: of a member of S what it says itself. Returns the ranks about which two
// of S disagree: results that have such a rank in them go with one of the stakes only.
RankSet MergeStakes(const PlanQuestion& q, Plan& plan) {
  RankSet disputed;
  for (const auto& [rank, status] : q.statuses)
    if (const auto own = status.stakes.find(rank); own != status.stakes.end())
      plan.stakes.insert(*own);
  for (const auto& [rank, status] : q.statuses) {
    for (const auto& [of, stake] : status.stakes) {
      const auto [it, fresh] = plan.stakes.emplace(of, stake);
      if (!fresh && it->second != stake) disputed.Insert(of);
    }
  }
  plan.excluded = disputed - RanksOf(q);
  return disputed;
}

RoundValue ValueOf(const PlanQuestion& q, const StatusFrame& status) {
  RoundValue value;
  value.abort = status.complete_abort;
  if (value.abort) return value;
  value.chunks = status.held;
  value.stakes.assign(q.spec->cells.size(), {});
  const RankSet all = ContributorsOf(value);
  for (const auto& [rank, stake] : status.stakes)
    if (rank < value.stakes.size() && all.Contains(rank)) value.stakes[rank] = stake;
  return value;
}

// The plan that keeps `value`; nullopt when a chunk of it is held by nobody in S.
std::optional<Plan> Keep(const PlanQuestion& q, Plan plan, const RoundValue& value) {
  plan.abort = value.abort;
  plan.excluded = {};
  for (size_t rank = 0; rank < value.stakes.size(); ++rank)
    if (ContributorsOf(value).Contains(rank))
      plan.stakes[static_cast<uint8_t>(rank)] = value.stakes[rank];
  if (value.abort) return plan;
  for (size_t c = 0; c < value.chunks.size(); ++c) {
    PlanChunk chunk;
    chunk.assigned = value.chunks[c].assigned;
    chunk.value = value.chunks[c];
    for (const auto& [rank, status] : q.statuses)
      if (status.held[c] == chunk.value) chunk.holders.Insert(rank);
    if (chunk.holders.empty()) return std::nullopt;
    chunk.owner = static_cast<uint8_t>(chunk.holders.first());
    plan.chunks.push_back(chunk);
  }
  return plan;
}

// Somebody saw a plan of a later ballot with another assignment. That plan had asked a quorum, so
// it would have kept the accepted value if that could still have been chosen.
bool Dead(const PlanQuestion& q) {
  const Digest kept = AssignmentHash(q.accepted_value->value);
  for (const auto& [rank, status] : q.statuses)
    for (const auto& [ballot, assignment] : status.plans)
      if (ballot > q.accepted && assignment != kept) return true;
  return false;
}

// Rule 3's value: of the highest ballot that is complete somewhere. It was decided only if all
// roots of that ballot were equal. Who holds the ballot with other results (a two-faced owner) or
// knows another stake of a contributor (two stand-ins of one rank that do not agree, each heard
// first by somebody) proves that they were not; of ballot 0, which everybody takes part in, so does
// anybody who knows another stake.
std::optional<RoundValue> HighestComplete(const PlanQuestion& q, RankSet disputed) {
  const StatusFrame* best = nullptr;
  for (const auto& [rank, status] : q.statuses)
    if (status.complete && (best == nullptr || *status.complete > *best->complete)) best = &status;
  if (best == nullptr) return std::nullopt;
  const RoundValue value = ValueOf(q, *best);
  if (*best->complete == 0 && ContributorsOf(value).Meets(disputed)) return std::nullopt;
  for (const auto& [rank, status] : q.statuses)
    if (status.complete == best->complete && ValueOf(q, status) != value) return std::nullopt;
  return value;
}

// Rendezvous hashing over S, weighted by the elements that each was given at first (its bandwidth):
// moves only what must move, and spreads it.
uint8_t NewOwner(const PlanQuestion& q, const std::vector<double>& shares, ChunkIndex chunk) {
  uint8_t best = 0;
  double best_score = -1;
  for (const auto& [rank, status] : q.statuses) {
    ByteWriter key;
    key.Raw(q.spec->instance.view());
    key.U16(q.ballot);
    key.U32(chunk.value());
    const uint64_t hash = ContentHash(key.bytes(), rank);
    // Below 1: the greatest of these would be rounded to it, and have no score.
    const double uniform = std::min((static_cast<double>(hash >> 11) + 0.5) * 0x1p-53, 1 - 0x1p-53);
    // The largest share / -ln(u) is of a rank with probability share / (sum of shares).
    const double score = shares[rank] / -std::log(uniform);
    if (score > best_score) {
      best = rank;
      best_score = score;
    }
  }
  return best;
}

std::vector<double> SharesOf(const PlanQuestion& q) {
  std::vector<double> shares(q.spec->cells.size(), 0.0);
  for (const ChunkSpan& chunk : q.spec->chunks) shares[chunk.owner] += chunk.count;
  double sum = 0;
  for (const auto& [rank, status] : q.statuses) sum += shares[rank];
  if (sum == 0) shares.assign(shares.size(), 1.0);  // only members without a part are left
  return shares;
}

// Rule 4 for one chunk. Results are adopted whose contributors are all `sure`: S knows their stakes
// and does not differ about them. (A result can be here while its sender's READY is not: it came
// between STATUS and PLAN, or was lost.)
PlanChunk Decide(const PlanQuestion& q, RankSet disputed, RankSet sure,
                 const std::vector<double>& shares, ChunkIndex index) {
  PlanChunk chunk;
  bool two_faced = false;  // its owner sent two different results: neither is taken
  for (const auto& [rank, status] : q.statuses) {
    const ChunkValue& held = status.held[index.value()];
    if (!held.held() || !sure.ContainsAll(held.mask)) continue;
    // The latest assignment counts; members that hold an older result drop it (Round::Assign).
    if (chunk.holders.empty() || held.assigned > chunk.assigned) {
      chunk.assigned = held.assigned;
      chunk.value = held;
      chunk.holders = RankSet::Of(rank);
      two_faced = false;
    } else if (held == chunk.value) {
      chunk.holders.Insert(rank);
    } else if (held.assigned == chunk.assigned) {
      two_faced = true;
    }
  }
  if (!chunk.holders.empty() && !two_faced) {
    chunk.owner = static_cast<uint8_t>(chunk.holders.first());
    return chunk;
  }
  chunk = PlanChunk();
  const auto first = static_cast<uint8_t>(q.spec->chunks[index.value()].owner);
  const auto status = q.statuses.find(first);
  // A live owner that has sent it to nobody keeps it, with the inputs that it has.
  if (status != q.statuses.end() && disputed.empty() &&
      !std::binary_search(status->second.served.begin(), status->second.served.end(), index)) {
    chunk.owner = first;
    return chunk;
  }
  chunk.assigned = q.ballot;
  chunk.owner = NewOwner(q, shares, index);
  return chunk;
}

}  // namespace

std::optional<Plan> MakePlan(const PlanQuestion& q) {
  Plan plan;
  plan.ballot = q.ballot;
  plan.branch = q.branch;
  plan.members = RanksOf(q);
  const RankSet disputed = MergeStakes(q, plan);
  // Rule 1: a quorum may have accepted it. In a branch no witness was asked.
  if (!q.branch && q.accepted != 0 && q.accepted_value && !Dead(q))
    return Keep(q, std::move(plan), q.accepted_value->value);
  // Rule 2: a member has applied it.
  for (const auto& [rank, status] : q.statuses)
    if (status.applied) return Keep(q, std::move(plan), ValueOf(q, status));
  // Rule 3: it may have been decided without witnesses, as the fast value or by a branch.
  if (const auto value = HighestComplete(q, disputed)) return Keep(q, std::move(plan), *value);
  // Nothing must be kept, and ballots run out: all give up by one decision.
  if (q.may_abort) {
    plan.abort = true;
    return plan;
  }
  // Rule 4.
  const std::vector<double> shares = SharesOf(q);
  RankSet sure;
  for (const auto& [rank, stake] : plan.stakes) sure.Insert(rank);
  for (uint32_t c = 0; c < q.spec->chunks.size(); ++c)
    plan.chunks.push_back(Decide(q, disputed, sure - disputed, shares, ChunkIndex(c)));
  return plan;
}

bool IsQuorumOf(size_t witnesses, uint64_t present) {
  const auto twice = 2 * static_cast<size_t>(std::popcount(present));
  return twice > witnesses || (twice == witnesses && (present & 1) != 0);
}

}  // namespace crowdsurf::worker
