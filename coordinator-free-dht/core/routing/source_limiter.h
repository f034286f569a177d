// SourceLimiter: one token bucket a sender, so that nobody can keep a node busy with requests.
//
// A request costs one token and one more for each record that it brings; a record that turns out
// forged costs forged_cost more, because verifying its signature took the time. Answers are not
// limited, they must match a question of ours. Over the limit nothing is done and nothing is
// answered: to the sender it is a lost message, and others do not feel it. Owned by Node; single
// sequence; Take is O(log sources). Bound: NodeConfig::sources buckets; above it those that are
// full again are forgotten, then the one that was idle longest.
#pragma once

#include <map>

#include "base/id.h"
#include "base/time.h"
#include "coordinator-free-dht/core/port/config.h"

namespace crowdsurf::dht {

class SourceLimiter {
 public:
  explicit SourceLimiter(const NodeConfig& config) : config_(config) {}  // outlives this

  // True when `source` has `cost` tokens, which are then gone. A bucket is full at first.
  bool Take(Time now, const PeerId& source, double cost);

  // Takes `cost` though it may not be there: what came was worse than it looked. The debt is paid
  // by waiting.
  void Fine(Time now, const PeerId& source, double cost);

  size_t size() const { return buckets_.size(); }
  size_t MemoryBytes() const;

 private:
  struct Bucket {
    double tokens = 0;
    Time at;
  };
  double TokensAt(Time now, const Bucket& bucket) const;
  void MakeRoom(Time now);

  const NodeConfig& config_;
  std::map<PeerId, Bucket> buckets_;
};

}  // namespace crowdsurf::dht
