// View plan: what the next view looks like. Pure functions; any thread.
//
// Called by the peer that forms a first view, by the steward, and by the leader of a branch.
// Source: docs/views.md. Cells are sticky: a member that stays keeps its cell while the grid's
// shape stays.
#pragma once

#include <set>
#include <vector>

#include "worker/core/view/averaging_config.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

// What a new view carries besides its members.
struct ViewFacts {
  AveragingConfig config;
  AveragingId first_averaging = {};
  AveragingId barrier = {};
  double base_samples = 0;
  uint64_t seed = 0;
  bool target_met = false;
  bool branch = false;  // of a branch's first view
};

// The grid for that many members; members <= MaxMembersOf(config).
Grid GridFor(size_t members, const AveragingConfig& config);
// As admission bounds spec.maxReplicas (base/manifest/strategies.h).
size_t MaxMembersOf(const AveragingConfig& config);

// The first view of a lineage, of one member.
View FirstView(const Member& self, const ViewFacts& facts);

// Successor of `seating`: its occupants without `gone`, and `newcomers` (as far as they fit).
// A branch begins a lineage of its own. Pre: somebody stays or comes.
View NextView(const Seating& seating, const std::set<PeerId>& gone,
              const std::vector<Member>& newcomers, const ViewFacts& facts);

// True when the view should be made anew for want of members: fewer than three quarters of the
// cells are taken or of the witnesses alive, and a smaller grid would do better.
bool IsThin(const Seating& seating, const std::set<PeerId>& gone);

}  // namespace crowdsurf::worker
