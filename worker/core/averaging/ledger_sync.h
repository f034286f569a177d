// LedgerSync: asks the other members for their ledger of leases where this peer may have missed an
// averaging.
//
// Until they have answered no averaging begins here, because a claim may rest on leases that were
// taken back. A member answers once the averagings that are asked about are over at it, so no
// ledger of theirs is decided after its answer. Bounds: one question at a time, at most as many
// asked as there are members; kMaxAskers that wait for an answer. Owner: Averaging; single
// sequence. Source: docs/shard.md.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/id.h"
#include "base/time.h"
#include "worker/core/port/averaging_messages.h"

namespace crowdsurf::worker {

class LedgerSync {
 public:
  static constexpr size_t kMaxAskers = 64;
  // A member that does not answer for so long, once an averaging is held up by that, is about to be
  // found dead. Halved, a slow machine is passed over; doubled, a death costs as much.
  static constexpr Duration kPatience = Milliseconds(300);

  // ---- asking. These return true when nothing is waited for any more.
  bool Ask(const std::vector<PeerId>& members);
  bool OnAnswer(const PeerId& from);
  bool OnPeerDown(const PeerId& peer);
  bool OnTimer(Time now);
  // An averaging is about to begin here.
  void OnNeeded(Time now) {
    if (until_.infinite()) until_ = now + kPatience;
  }
  void Stop() { waiting_.clear(); }
  bool waits(Time now) const { return !waiting_.empty() && now < until_; }
  Time NextDeadline() const { return waiting_.empty() ? Time::Infinite() : until_; }

  // ---- answering
  // False: too many wait already.
  bool Keep(const PeerId& from, const message::LedgerAsk& ask);
  std::map<PeerId, message::LedgerAsk> TakeKept();

 private:
  bool Drop(const PeerId& peer);

  std::set<PeerId> waiting_;  // for their answers
  Time until_ = Time::Infinite();
  std::map<PeerId, message::LedgerAsk> kept_;
};

}  // namespace crowdsurf::worker
