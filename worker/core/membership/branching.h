// Branching: a new lineage of the survivors when the witnesses' quorum is gone.
//
// The longest-lived survivor asks every member it believes alive. One that answers leaves the
// parent view for good; the branch is decided when all that answered hold its first view. Owner:
// Membership, single sequence. Bound: one attempt at a time. Source: docs/views.md, Branch.
// Differs: decided for the whole job between averagings, not inside one group's round; rounds in
// flight end as `branch`.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "base/time.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/view_messages.h"
#include "worker/core/view/view.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {

class BranchLeader {
 public:
  // Asks `live` (without the leader). Silence for `patience` counts as death.
  BranchLeader(const PeerId& self, Seating parent, std::set<PeerId> live, ViewFacts facts,
               Duration patience);

  void Start(Time now, Actions& out);
  void OnJoin(Time now, const PeerId& from, const message::BranchJoin& join, Actions& out);
  void OnHeld(const PeerId& from, const message::BranchHeld& held);
  void OnPeerDown(Time now, const PeerId& peer, Actions& out);
  void OnTimer(Time now, Actions& out);
  Time NextDeadline() const { return decided() ? Time::Infinite() : deadline_; }
  // The branch's first view, once all of it hold it.
  bool decided() const;
  const View& view() const { return *view_; }

 private:
  void MaybePropose(Time now, Actions& out);

  const PeerId self_;
  const Seating parent_;
  std::set<PeerId> live_;
  ViewFacts facts_;
  const Duration patience_;
  uint32_t attempt_ = 0;
  std::set<PeerId> joined_;
  std::set<PeerId> held_;
  std::optional<View> view_;
  Time deadline_;
};

}  // namespace crowdsurf::worker
