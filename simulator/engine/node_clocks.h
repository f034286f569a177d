// NodeClocks: the wall clocks of numbered nodes, some of them off, and what each node learns of the
// others' clocks.
//
// Each node has the agent's own estimate (dht::PeerClocks). As long as no clock is off, all tell
// the true time and nothing is learnt. Owner: one world; single sequence.
#pragma once

#include <map>

#include "base/time.h"
#include "coordinator-free-dht/core/clock/peer_clocks.h"
#include "simulator/engine/event_queue.h"

namespace crowdsurf::simulator {

class NodeClocks {
 public:
  explicit NodeClocks(const EventQueue& queue) : queue_(queue) {}

  // From now on the clock of `node` is ahead by this.
  void Set(int node, Duration ahead) { ahead_[node] = ahead; }
  // Planted: no node minds the others' clocks.
  void KeepOwn() { keep_own_ = true; }

  // `from` has answered a question of `node` that took so long.
  void Hear(int node, int from, Duration round_trip);
  // What `node` takes for the job's time.
  WallTime JobTime(int node) const;

 private:
  WallTime TrueTime() const;
  dht::Clocks Own(int node) const;

  const EventQueue& queue_;
  bool keep_own_ = false;
  std::map<int, Duration> ahead_;
  std::map<int, dht::PeerClocks> learnt_;
};

}  // namespace crowdsurf::simulator
