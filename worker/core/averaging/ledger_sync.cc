#include "worker/core/averaging/ledger_sync.h"

#include <utility>

namespace crowdsurf::worker {

bool LedgerSync::Ask(const std::vector<PeerId>& members) {
  waiting_ = {members.begin(), members.end()};
  until_ = Time::Infinite();
  return waiting_.empty();
}

bool LedgerSync::Drop(const PeerId& peer) { return waiting_.erase(peer) > 0 && waiting_.empty(); }

bool LedgerSync::OnAnswer(const PeerId& from) { return Drop(from); }

bool LedgerSync::OnPeerDown(const PeerId& peer) { return Drop(peer); }

bool LedgerSync::OnTimer(Time now) {
  if (waiting_.empty() || now < until_) return false;
  waiting_.clear();
  return true;
}

bool LedgerSync::Keep(const PeerId& from, const message::LedgerAsk& ask) {
  if (kept_.size() >= kMaxAskers && !kept_.contains(from)) return false;
  kept_.insert_or_assign(from, ask);
  return true;
}

std::map<PeerId, message::LedgerAsk> LedgerSync::TakeKept() { return std::exchange(kept_, {}); }

}  // namespace crowdsurf::worker
