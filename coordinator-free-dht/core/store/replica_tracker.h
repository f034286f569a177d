// ReplicaTracker: the nearest peers of each key that a node publishes or watches.
//
// It remembers the result of the last lookup of each followed key. It mixes that with the routing
// table, which learns of joins and deaths between lookups. A renewed record therefore goes out at
// once, and a watch moves at once. Lookups correct the result: the peers nearest to a key are not
// near to this node, and the first peers to be asked knew few of them. Lookups begin soon after the
// node meets its first peers. Their interval doubles up to NodeConfig::holders_refresh. Owned by
// Node; single sequence.
#pragma once

#include <map>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "coordinator-free-dht/core/port/config.h"
#include "coordinator-free-dht/core/wire/message.h"

namespace crowdsurf::dht {

class RoutingTable;

class ReplicaTracker {
 public:
  // `table` and `config` outlive the tracker.
  ReplicaTracker(const PeerId& self, const NodeConfig& config, const RoutingTable& table, Rng rng)
      : self_(self), config_(config), table_(table), rng_(rng) {}

  // Follow and Unfollow nest: a key may be published and watched.
  void Follow(const Key& key) { ++keys_[key].followers; }
  void Unfollow(const Key& key);

  // The followed keys whose holders are to be looked up now; each counts as being looked up then.
  std::vector<Key> TakeDue(Time now);
  void OnLookedUp(Time now, const Key& key, std::vector<Contact> nearest);
  // The node met peers that it did not know: all keys are looked up at once, and soon again.
  void Hurry(Time now);
  // True when a lookup of `key` has ended since the key is followed.
  bool Known(const Key& key) const;
  // `id` is gone or does not answer: it is no holder until a lookup finds it again.
  void Remove(const PeerId& id);

  struct Holders {
    std::vector<Contact> others;  // closest first
    bool self = false;            // is this node one of the k nearest?
  };
  // The k nearest peers to `key`, this node counted.
  Holders Of(const Key& key) const;

  Time NextDeadline() const;
  size_t MemoryBytes() const;

 private:
  struct State {
    int followers = 0;
    bool known = false;
    bool looking = false;
    Time next_lookup;   // zero: at once
    Duration interval;  // after the lookup under way; zero: NodeConfig::holders_first
    std::vector<Contact> found;
  };
  const PeerId self_;
  const NodeConfig& config_;
  const RoutingTable& table_;
  Rng rng_;
  std::map<Key, State> keys_;
};

}  // namespace crowdsurf::dht
