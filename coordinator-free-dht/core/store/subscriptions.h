// Subscriptions: who wants to be told when a key that we hold changes.
//
// A subscription is a (key, watcher) pair with an end; the watcher renews it while it cares and
// while we are one of the nearest holders. Bounded per key, per watcher and in all; a refused one
// is answered "no" and the watcher goes elsewhere. Owned by Node; single sequence.
#pragma once

#include <map>
#include <vector>

#include "base/time.h"
#include "coordinator-free-dht/core/port/config.h"
#include "coordinator-free-dht/core/wire/message.h"

namespace crowdsurf::dht {

class Subscriptions {
 public:
  explicit Subscriptions(const NodeConfig& config) : config_(config) {}  // outlives this

  // Adds or renews until `now` + min(life, NodeConfig::watch_life). False when a bound refuses it.
  bool Add(Time now, const Key& key, const Contact& watcher, Duration life);
  void Remove(const Key& key, const PeerId& watcher);
  // Ends all of a watcher that is gone.
  void RemoveWatcher(const PeerId& watcher);
  // Drops what has ended.
  void Sweep(Time now);
  struct Watcher {
    Contact contact;
    Time since;  // of its subscription, which it has renewed
  };
  // Whom to tell about `key`, by id.
  std::vector<Watcher> Watchers(Time now, const Key& key) const;

  size_t size() const { return size_; }
  size_t MemoryBytes() const;

 private:
  struct Subscription {
    Contact watcher;
    Time since, until;
  };
  void Forget(const PeerId& watcher);

  const NodeConfig& config_;
  std::map<Key, std::map<PeerId, Subscription>> by_key_;
  std::map<PeerId, size_t> keys_of_;  // watcher -> number of keys
  size_t size_ = 0;
};

}  // namespace crowdsurf::dht
