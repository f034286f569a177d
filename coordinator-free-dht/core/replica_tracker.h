// HolderBook: for the keys a node publishes or watches, who the nearest peers are.
//
// Remembers the result of the last lookup of each followed key and mixes it with the routing table,
// which learns of joins and deaths between lookups. So a renewed record goes out, and a watch
// moves, at once; lookups correct it, soon after this node came into company and then ever more
// seldom, down to one every NodeConfig::holders_refresh: the peers nearest to a key are not near to
// this node, and the first to be asked knew as little of them. Owned by Node; single sequence.
#pragma once

#include <map>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "coordinator-free-dht/core/config.h"
#include "coordinator-free-dht/core/message.h"
#include "coordinator-free-dht/core/routing_table.h"

namespace crowdsurf::dht {

class HolderBook {
 public:
  // `table` and `config` outlive the book.
  HolderBook(const PeerId& self, const NodeConfig& config, const RoutingTable& table, Rng rng)
      : self_(self), config_(config), table_(table), rng_(rng) {}

  // Follow and Unfollow nest: a key may be published and watched.
  void Follow(const Key& key) { ++keys_[key].followers; }
  void Unfollow(const Key& key);

  // The followed keys whose holders are to be looked up now; each counts as being looked up then.
  std::vector<Key> TakeDue(Time now);
  void OnLookedUp(Time now, const Key& key, std::vector<Contact> nearest);
  // There is company that was not there before: all keys are looked up at once, and soon again.
  void Hurry(Time now);
  // Was there a lookup of `key` since it is followed?
  bool Known(const Key& key) const;
  // `id` is gone or does not answer: no holder until found again.
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
