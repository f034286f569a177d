// CatchUp: how a member that missed an averaging comes to the base that the others step from.
//
// With an outer optimizer a snapshot counts from a base, the last committed average. A member that
// missed an averaging has an older one. It sits averagings out until it has fetched the newer base
// and velocity from members that hold them, and has moved its trainer by as much as the base has
// moved; its own training since stays. It learns of holders from what they say when they are due.
// Owner: Averaging, single sequence. It decides; Averaging fetches and moves. Bounds: one entry a
// member. Source: docs/outer-optimizer.md.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/id.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/contact.h"
#include "worker/core/port/inputs.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

// Of two bases the one that members go on from: the later averaging, then more samples, then one
// that has a name, then the lower root, as members of a round decide it (Round::IsBehind).
inline bool IsLater(const Committed& base, const Committed& than) {
  if (base.averaging != than.averaging) return base.averaging > than.averaging;
  if (base.job_samples != than.job_samples) return base.job_samples > than.job_samples;
  if (base.root.none() != than.root.none()) return than.root.none();
  return base.root < than.root;
}

class CatchUp {
 public:
  static constexpr size_t kMaxDonors = 8;  // more in parallel would not fill a link faster
  // Fetches between two averagings of its own. One that fails, or comes when the others have gone
  // on, is tried again; then the member contributes what it has, and all begin a base anew.
  static constexpr int kMaxTries = 2;

  // ---- who holds what
  // `peer`, a member, holds this average and can serve it.
  void OnHolder(const PeerId& peer, const Committed& theirs) { holders_[peer] = theirs; }
  // The best that a live member of `seating` holds beyond `averaging`; nullptr: nobody does, or it
  // was tried often enough.
  const Committed* Beyond(AveragingId averaging, const Seating& seating,
                          const std::set<PeerId>& down) const;
  // The best that is later than `own`, as IsLater says. However often it was tried.
  const Committed* Ahead(const Committed& own, const Seating& seating,
                         const std::set<PeerId>& down) const;
  // Another view: its members say anew what they hold.
  void ForgetHolders() { holders_.clear(); }

  // This member has completed an averaging: it is with the others.
  void OnDelivered() { tries_ = 0; }
  void TryAnew() { tries_ = 0; }

  // ---- one step after the other
  // Until the trainer has been moved, or the fetch has failed: no averaging begins meanwhile.
  bool busy() const { return stage_ != Stage::kIdle; }
  // Fetches what was found into `into`; adopt: FetchState's. Pre: not busy.
  FetchState Fetch(const Committed& wanted, Region into, bool adopt = false);
  // The fetch is over: what came, nullopt when nothing newer than `own` did.
  std::optional<Committed> OnFetched(const StateFetched& fetched, AveragingId own);
  // The fetch is over, and the trainer takes what came in place of its own: what that is. Also when
  // nobody waited for it any more. Pre: busy, fetched.ok.
  Committed OnAdopted(const StateFetched& fetched);
  // The trainer's snapshot is needed, and has not been asked for.
  bool wants_snapshot() const { return stage_ == Stage::kFetched; }
  AveragingId averaging() const { return state_.averaging; }  // that was fetched
  void OnAsked() { stage_ = Stage::kAsked; }
  void OnRefused();
  // The snapshot is there: the state that the trainer is moved to. nullopt: nobody waits for it.
  std::optional<Committed> OnSnapshot();
  // A fetch into another region replaced it, or there is no trainer any more.
  void Stop() { stage_ = Stage::kIdle; }
  // The seat, or the base, is gone. A fetch goes on, and nothing comes of it.
  void Drop();

 private:
  void TakeNewer(const StateFetched& fetched);

  enum class Stage : uint8_t { kIdle, kFetching, kDropped, kFetched, kAsked };

  std::map<PeerId, Committed> holders_;
  Stage stage_ = Stage::kIdle;
  Committed state_;  // wanted, then fetched
  int tries_ = 0;
};

}  // namespace crowdsurf::worker
