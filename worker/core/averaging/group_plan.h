// Group plan: the instance of one group in one round, as everybody derives it from the seating.
//
// Pure: members, stand-ins and owners of such an instance compute the same plan or get another
// instance id, and then exchange seats (group_rounds.h). Any thread. Source: docs/averaging.md;
// parts by bandwidth class (partition.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/core/round/round_spec.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/grid.h"

namespace crowdsurf::worker {

class Seating;

struct GroupQuestion {
  std::string job;
  AveragingId averaging = {};
  uint32_t round = 0;     // rounds of this averaging that are done
  size_t axis = 0;        // the group's
  bool stand_ins = true;  // rounds: All
  uint64_t elements = 0;  // of the vector
  uint32_t chunk_elements = 0;
  // Chunks begin at multiples of it: values of one block of a wire format stay together.
  uint32_t block = 1;
  // Instead of equal parts of the vector (IST): by cell, of one group whose ranks are the view's
  // cells. Borrowed; nullptr: parts by bandwidth.
  const std::vector<CoveredChunk>* covered = nullptr;
};

struct GroupPlan {
  InstanceId instance;
  RegisterAge age;
  CellIndex group = 0;           // its least cell: names it
  std::vector<CellIndex> ranks;  // cell of each rank
  std::vector<RoundCell> cells;
  std::vector<ChunkSpan> chunks;
  std::vector<RankSet> coverers;  // RoundSpec::coverers

  std::optional<int> RankOf(const PeerId& id) const;
};

// The plan of the group of `cell`. Pre: seating is AsOf(question.averaging); the group has a
// member.
GroupPlan PlanOf(const Seating& seating, CellIndex cell, const GroupQuestion& question);

}  // namespace crowdsurf::worker
