#include "worker/core/membership/branching.h"

#include "worker/core/port/messages.h"

#include <algorithm>

namespace crowdsurf::worker {

BranchLeader::BranchLeader(const PeerId& self, Seating parent, std::set<PeerId> live,
                           ViewFacts facts, Duration patience)
    : self_(self),
      parent_(std::move(parent)),
      live_(std::move(live)),
      facts_(std::move(facts)),
      patience_(patience) {
  facts_.branch = true;
}

void BranchLeader::Start(Time now, Actions& out) {
  // A new number: answers to earlier attempts count no more.
  ++attempt_;
  joined_.clear();
  held_.clear();
  view_.reset();
  deadline_ = now + patience_;
  const Bytes body = EncodeMessage(message::BranchOpen{parent_.hash(), attempt_});
  for (const PeerId& peer : live_) out.push_back(Send{peer, body});
  MaybePropose(now, out);
}

void BranchLeader::OnJoin(Time now, const PeerId& from, const message::BranchJoin& join,
                          Actions& out) {
  if (join.parent != parent_.hash() || join.attempt != attempt_ || view_) return;
  // Never asked, or given up for its silence.
  if (!live_.contains(from)) return;
  joined_.insert(from);
  facts_.first_averaging = std::max(facts_.first_averaging, join.next_averaging);
  MaybePropose(now, out);
}

void BranchLeader::MaybePropose(Time now, Actions& out) {
  if (view_ || joined_ != live_) return;
  std::set<PeerId> gone;
  for (const auto& [cell, member] : parent_.occupants())
    if (member.id != self_ && !joined_.contains(member.id)) gone.insert(member.id);
  view_ = NextView(parent_, gone, {}, facts_);
  deadline_ = now + patience_;
  const Bytes body = EncodeMessage(message::BranchView{parent_.hash(), attempt_, Encode(*view_)});
  for (const PeerId& peer : joined_) out.push_back(Send{peer, body});
}

void BranchLeader::OnHeld(const PeerId& from, const message::BranchHeld& held) {
  if (view_ && held.parent == parent_.hash() && held.attempt == attempt_) held_.insert(from);
}

bool BranchLeader::decided() const {
  return view_ && std::includes(held_.begin(), held_.end(), joined_.begin(), joined_.end());
}

void BranchLeader::OnPeerDown(Time now, const PeerId& peer, Actions& out) {
  // A view that was proposed has the dead peer in it, so all begin anew.
  if (decided() || live_.erase(peer) == 0) return;
  Start(now, out);
}

void BranchLeader::OnTimer(Time now, Actions& out) {
  if (decided() || now < deadline_) return;
  // Silence long enough: a peer that has not answered is not of this branch.
  live_ = view_ ? held_ : joined_;
  Start(now, out);
}

}  // namespace crowdsurf::worker
