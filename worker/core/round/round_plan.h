// The plan rule: which value a ballot's coordinator proposes, from what its members and witnesses
// said.
//
// A pure function, apart from Round so that it can be read, tested and (in the tests) replaced by a
// faulty one. First rule that fits (docs/round.md): 1 the highest accepted value, unless a
// later plan proves it was never chosen; 2 what somebody applied; 3 the highest ballot that
// somebody holds complete (0: the fast value); 4 chunk by chunk: adopt, leave to its live first
// owner, reduce again. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "worker/core/round/round_frames.h"

namespace crowdsurf::worker {

struct RoundSpec;

struct PlanQuestion {
  const RoundSpec* spec = nullptr;
  Ballot ballot = 0;
  bool branch = false;
  bool may_abort = false;                   // the budget of ballots is nearly spent
  std::map<uint8_t, StatusFrame> statuses;  // of S, by rank
  Ballot accepted = 0;                      // highest among the promises, 0 none
  std::optional<HeldValue> accepted_value;
};

// nullopt: orphan. A value must be kept (rule 1) but nobody in S holds all of it any more.
using PlanRule = std::optional<Plan> (*)(const PlanQuestion& question);
std::optional<Plan> MakePlan(const PlanQuestion& question);

// The witnesses at the indexes in `present` are a quorum of `witnesses`: more than half, or exactly
// half with index 0 (any two quorums meet).
bool IsQuorumOf(size_t witnesses, uint64_t present);

}  // namespace crowdsurf::worker
