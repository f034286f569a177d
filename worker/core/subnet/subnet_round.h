// SubnetRound: the one round of an averaging under IST, as everybody derives it from the partition.
//
// The exchange says which coordinates a chunk has; this adds who takes part, by the cells of the
// view's one group. A value that is shared and never changes; any thread. Memory: SubnetExchange's,
// and two words a chunk. Source: docs/strategies.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/core/round/round_spec.h"
#include "worker/core/subnet/subnet_exchange.h"
#include "worker/core/view/grid.h"

namespace crowdsurf::worker {

struct SubnetRound {
  SubnetExchange exchange;
  // Those of the exchange, in its order; owner and coverers are cells. The whole group covers what
  // all members of the partition cover. So a member that is not in the partition, and trains the
  // whole model, takes part in what is shared, and is dealt units the next time.
  std::vector<CoveredChunk> chunks;

  // Its values of the chunk are its trainer's; else they are the base's.
  bool Covers(size_t rank, size_t chunk) const { return chunks[chunk].coverers.Contains(rank); }
};

// cells: of the partition's members, in their order. Pre: as many as members, below 64, ascending.
std::shared_ptr<const SubnetRound> MakeSubnetRound(const UnitSchema& schema,
                                                   const UnitPartition& partition,
                                                   const std::vector<CellIndex>& cells,
                                                   uint32_t chunk_elements);

}  // namespace crowdsurf::worker
