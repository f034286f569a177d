// RoutingTable: the peers a node knows, more of them the nearer they are.
//
// Bucket i holds peers whose ids share exactly i leading bits with ours (Kademlia 2.2). Only peers
// that answered a request enter. A full bucket keeps each peer that answers. Newcomers wait in a
// bounded replacement cache, and the longest silent member is to be pinged. Differences from the
// paper: the k peers nearest to ourselves are always kept, whatever their bucket's size (the
// irregular split of 2.4). Lookups therefore find the true k nearest. A wait list is bounded, and
// each contact has a round-trip estimate. Owned by Node; single sequence. About 150 bytes each.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"
#include "coordinator-free-dht/core/port/config.h"
#include "coordinator-free-dht/core/wire/message.h"

namespace crowdsurf::dht {

// Mean and mean deviation of round trips (Jacobson's gains 1/8 and 1/4); the 95th percentile is
// taken as mean + 2 deviations (for a normal law: 1.65 sigma = 2.06 deviations).
class RoundTrips {
 public:
  void Add(Duration rtt);
  bool empty() const { return mean_ < 0; }
  Duration Percentile95() const { return Seconds(mean_ + 2.0 * deviation_); }  // pre: not empty

 private:
  float mean_ = -1;  // seconds; negative: no sample
  float deviation_ = 0;
};

class RoutingTable {
 public:
  // `config` outlives the table.
  RoutingTable(const PeerId& self, const NodeConfig& config) : self_(self), config_(config) {}

  struct Heard {
    bool added = false;           // is new in a bucket (not merely waiting)
    std::optional<Contact> ping;  // the longest silent contact of its full bucket: ask it
  };
  // `contact` answered a request after `rtt`.
  Heard OnReply(Time now, const Contact& contact, Duration rtt);
  // `contact` asked us something: a known one is alive and may have a new endpoint. True when it is
  // unknown and would enter a bucket if it answered.
  bool OnRequest(Time now, const Contact& contact);
  // `id` did not answer. True when it was dropped for that (then a waiting one may have come in).
  bool OnFailure(const PeerId& id);
  // Forgets `id` at once, in bucket and wait list. True when it was in a bucket.
  bool Remove(const PeerId& id);

  // The peers that came into a bucket from its wait list since the last call. Each answered once, a
  // while ago, and is to be asked whether it lives. At most one for each contact that was dropped
  // or removed.
  std::vector<PeerId> TakePromoted() { return std::exchange(promoted_, {}); }

  bool Contains(const PeerId& id) const { return Find(id).has_value(); }
  std::optional<Contact> Find(const PeerId& id) const;
  // The n contacts nearest to `target`, closest first. O(size).
  std::vector<Contact> Nearest(const Key& target, size_t n) const;
  // After how long `id`'s answer is late; of a peer never heard from: as first answers were so far.
  Duration SlowAfter(const PeerId& id) const;

  // Buckets with no lookup since `before`, as a random point in each, given `random` bits; marks
  // them as looked up at `now`. Buckets beyond the deepest one in use are not listed.
  std::vector<int> StaleBuckets(Time before) const;
  void MarkLookup(const Key& target, Time now);
  // The deepest bucket in use, -1 when empty.
  int DeepestBucket() const { return buckets_.empty() ? -1 : buckets_.rbegin()->first; }

  size_t size() const { return size_; }
  size_t MemoryBytes() const;

 private:
  struct Entry {
    Contact contact;
    Time heard;
    RoundTrips round_trips;
    int failures = 0;
  };
  struct Bucket {
    std::vector<Entry> entries;  // longest silent first
    std::vector<Entry> waiting;  // newest last
    Time looked_up;
  };
  int IndexOf(const PeerId& id) const { return CommonPrefix(PointOf(self_), PointOf(id)); }
  Bucket* FindBucket(const PeerId& id);
  const Bucket* FindBucket(const PeerId& id) const;
  bool AmongNearest(const PeerId& id) const;
  void Promote(Bucket& bucket);
  void EraseIfEmpty(int index);

  const PeerId self_;
  const NodeConfig& config_;
  std::map<int, Bucket> buckets_;
  size_t size_ = 0;
  std::vector<PeerId> promoted_;
  RoundTrips first_answers_;  // of peers not known before: with a connection to be made
};

}  // namespace crowdsurf::dht
