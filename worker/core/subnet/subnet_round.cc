#include "worker/core/subnet/subnet_round.h"

#include "base/check.h"

namespace crowdsurf::worker {

std::shared_ptr<const SubnetRound> MakeSubnetRound(const UnitSchema& schema,
                                                   const UnitPartition& partition,
                                                   const std::vector<CellIndex>& cells,
                                                   uint32_t chunk_elements) {
  CHECK_EQ(cells.size(), partition.members());
  auto round = std::make_shared<SubnetRound>(
      SubnetRound{SubnetExchange(schema, partition, chunk_elements), {}});
  const RankSet all = RankSet::FirstRanks(cells.size());
  for (const SubnetChunk& chunk : round->exchange.chunks()) {
    CoveredChunk covered{chunk.span, {}};
    covered.span.owner = static_cast<uint16_t>(cells[chunk.span.owner]);
    for (size_t member = 0; member < cells.size(); ++member)
      if (chunk.coverers.Contains(member)) covered.coverers.Insert(cells[member]);
    // All ranks that a group can have: PlanOf takes away those without a member.
    if (chunk.coverers == all) covered.coverers = RankSet::FirstRanks(kMaxRanks);
    round->chunks.push_back(covered);
  }
  return round;
}

}  // namespace crowdsurf::worker
