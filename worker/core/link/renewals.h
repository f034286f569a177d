// Renewals: which accepted connection is there again after one that was cut.
//
// A peer sends on a connection that it dialed. When that is cut, frames in the kernels' buffers are
// gone, and the next connection says nothing of them. Pure; the caller serializes. Bound: peers
// with a connection, and kMost that have none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/id.h"

namespace crowdsurf::worker {

enum class LinkEnd : uint8_t { kInGoodOrder, kCut };

class Renewals {
 public:
  static constexpr size_t kMost = 4096;  // of an agent's peers; without one, a ballot asks instead

  // True: an earlier connection of `peer` was cut since, or has not ended yet, being half open.
  bool OnOpen(const PeerId& peer) {
    State& state = peers_[peer];
    const bool renewed = state.cut || state.open > 0;
    state.cut = false;
    ++state.open;
    return renewed;
  }
  void OnEnd(const PeerId& peer, LinkEnd how) {
    const auto it = peers_.find(peer);
    if (it == peers_.end()) return;
    --it->second.open;
    it->second.cut |= how == LinkEnd::kCut;
    if (it->second.open == 0 && !it->second.cut) peers_.erase(it);
    if (peers_.size() <= kMost) return;
    std::erase_if(peers_, [](const auto& entry) { return entry.second.open == 0; });
  }
  size_t size() const { return peers_.size(); }

 private:
  struct State {
    int open = 0;
    bool cut = false;
  };
  std::map<PeerId, State> peers_;
};

}  // namespace crowdsurf::worker
