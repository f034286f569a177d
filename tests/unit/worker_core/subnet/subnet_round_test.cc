// The chunks of a round by cell: who covers what, when members of the partition have other cells.
#include "worker/core/subnet/subnet_round.h"

#include <gtest/gtest.h>

#include "tests/unit/worker_core/subnet/drawn_model.h"

namespace crowdsurf::worker {
namespace {

TEST(SubnetRoundTest, CellsStandForTheMembersOfThePartition) {
  Rng rng(4);
  for (int draw = 0; draw < 200; ++draw) {
    const UnitSchema schema = DrawSchema(rng);
    std::vector<CellIndex> cells;
    for (CellIndex cell = 0; cell < 12; ++cell)
      if (rng.Bernoulli(0.4) || (cell == 11 && cells.empty())) cells.push_back(cell);
    const UnitPartition partition({1, 2, AveragingId(3)}, DrawWeights(cells.size(), rng),
                                  schema.units());
    const auto round = MakeSubnetRound(schema, partition, cells, 5);
    ASSERT_EQ(round->chunks.size(), round->exchange.chunks().size());
    uint64_t elements = 0;
    for (size_t c = 0; c < round->chunks.size(); ++c) {
      const CoveredChunk& chunk = round->chunks[c];
      const SubnetChunk& of = round->exchange.chunks()[c];
      elements += chunk.span.count;
      EXPECT_EQ(chunk.span.owner, cells[of.span.owner]);
      for (size_t member = 0; member < cells.size(); ++member)
        EXPECT_EQ(chunk.coverers.Contains(cells[member]), of.coverers.Contains(member));
      // Another cell covers what all cover, and nothing else.
      const bool all = of.coverers == RankSet::FirstRanks(cells.size());
      EXPECT_EQ(chunk.coverers.Contains(40), all);
      EXPECT_EQ(round->Covers(40, c), all);
    }
    EXPECT_EQ(elements, round->exchange.size());
  }
}

}  // namespace
}  // namespace crowdsurf::worker
