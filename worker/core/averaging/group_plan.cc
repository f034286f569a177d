#include "worker/core/averaging/group_plan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/core/round/partition.h"
#include "worker/core/view/stand_in.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {
namespace {

// A part below 1 KiB of float32 costs its frames more than it spares its neighbours.
constexpr uint64_t kMinPart = 256;

// Whole blocks for each member; the owner of the last one has what is left.
std::vector<uint64_t> BlocksOf(const GroupQuestion& question,
                               std::vector<std::optional<double>> bandwidths) {
  const uint64_t block = question.block;
  const uint64_t blocks = (question.elements + block - 1) / block;
  const uint64_t least = std::max<uint64_t>(kMinPart / block, 1);
  auto sizes = PartSizes(blocks, bandwidths, least);
  if (!sizes.ok()) {  // every member claims no bandwidth: as if nobody knew
    for (auto& bandwidth : bandwidths) bandwidth.reset();
    sizes = PartSizes(blocks, bandwidths, least);
  }
  std::vector<uint64_t> shares = *std::move(sizes);
  for (uint64_t& share : shares) share *= block;
  const auto last = std::find_if(shares.rbegin(), shares.rend(), [](uint64_t s) { return s > 0; });
  if (last != shares.rend()) *last -= blocks * block - question.elements;
  return shares;
}

std::vector<ChunkSpan> ChunksOf(const Seating& seating, const GroupPlan& plan,
                                const GroupQuestion& question) {
  std::vector<std::optional<double>> bandwidths;
  RankSet members;
  for (size_t rank = 0; rank < plan.cells.size(); ++rank) {
    if (!plan.cells[rank].member) continue;
    members.Insert(rank);
    bandwidths.push_back(BandwidthOfClass(seating.At(plan.ranks[rank])->bandwidth_class));
  }
  CHECK(!members.empty());
  const std::vector<uint64_t> own = BlocksOf(question, std::move(bandwidths));
  std::vector<uint64_t> shares(plan.cells.size(), 0);
  size_t next = 0;
  for (size_t rank = 0; rank < plan.cells.size(); ++rank)
    if (members.Contains(rank)) shares[rank] = own[next++];
  const uint32_t whole = question.chunk_elements / question.block * question.block;
  return MakeChunks(shares, members, std::max(whole, question.block));
}

// Chunks that are given by cell, for those that are in the group now. A coverer follows an owner
// that is gone, or any member where no coverer is left.
void TakeCovered(const std::vector<CoveredChunk>& covered, GroupPlan& plan) {
  RankSet members;
  for (size_t rank = 0; rank < plan.cells.size(); ++rank) {
    CHECK_EQ(plan.ranks[rank], rank);
    if (plan.cells[rank].member) members.Insert(rank);
  }
  for (const CoveredChunk& chunk : covered) {
    ChunkSpan span = chunk.span;
    const RankSet coverers = chunk.coverers & members;
    if (!members.Contains(span.owner))
      span.owner = static_cast<uint16_t>(coverers.empty() ? members.first() : coverers.first());
    plan.chunks.push_back(span);
    plan.coverers.push_back(coverers);
  }
}

}  // namespace

std::optional<int> GroupPlan::RankOf(const PeerId& id) const {
  for (size_t rank = 0; rank < cells.size(); ++rank)
    if (cells[rank].member == id) return static_cast<int>(rank);
  return std::nullopt;
}

GroupPlan PlanOf(const Seating& seating, CellIndex cell, const GroupQuestion& question) {
  GroupPlan plan;
  // Sittings tell a list from an equal one before a member was vacated and seated again.
  uint32_t sittings = 0;
  const bool speak = question.stand_ins && question.round > 0;
  const StandIns stand_ins = speak ? StandIns::kSpeak : StandIns::kNone;
  for (PlannedCell& planned : PlanGroup(seating, cell, question.axis, stand_ins)) {
    plan.ranks.push_back(planned.cell);
    if (planned.member) sittings += seating.SittingOf(*planned.member);
    plan.cells.push_back(
        {.member = planned.member, .speakers = {planned.speakers.begin(), planned.speakers.end()}});
  }
  plan.group = plan.ranks.front();
  plan.age = {
      .epoch = seating.view().epoch, .averaging = question.averaging, .round = question.round};
  if (question.covered != nullptr)
    TakeCovered(*question.covered, plan);
  else
    plan.chunks = ChunksOf(seating, plan, question);
  plan.instance = IdOf({.job = question.job,
                        .view = seating.hash(),
                        .averaging = question.averaging,
                        .round = question.round,
                        .axis = static_cast<uint32_t>(question.axis),
                        .group = plan.group,
                        .member_list = MemberListHash(plan.cells),
                        .attempt = sittings});
  return plan;
}

}  // namespace crowdsurf::worker
