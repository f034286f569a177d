#include "coordinator-free-dht/core/routing/routing_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace crowdsurf::dht {
namespace {

template <class Entries>
auto FindIn(Entries& entries, const PeerId& id) {
  return std::find_if(entries.begin(), entries.end(),
                      [&](const auto& entry) { return entry.contact.id == id; });
}

// The first 64 bits as a number, so that it orders as the whole does.
uint64_t Prefix(const Key& key) {
  uint64_t out = 0;
  for (size_t i = 0; i < 8; ++i) out = out << 8 | key.bytes()[i];
  return out;
}

}  // namespace

void RoundTrips::Add(Duration rtt) {
  const auto sample = static_cast<float>(rtt.seconds());
  if (empty()) {
    mean_ = sample;
    // RFC 6298 2.2 begins so: one sample says nothing of the spread.
    deviation_ = sample / 2;
    return;
  }
  const float error = sample - mean_;
  mean_ += error / 8;
  deviation_ += (std::fabs(error) - deviation_) / 4;
}

RoutingTable::Bucket* RoutingTable::FindBucket(const PeerId& id) {
  const auto it = buckets_.find(IndexOf(id));
  return it == buckets_.end() ? nullptr : &it->second;
}

const RoutingTable::Bucket* RoutingTable::FindBucket(const PeerId& id) const {
  const auto it = buckets_.find(IndexOf(id));
  return it == buckets_.end() ? nullptr : &it->second;
}

RoutingTable::Heard RoutingTable::OnReply(Time now, const Contact& contact, Duration rtt) {
  if (contact.id == self_ || contact.id.none()) return {};
  Bucket& bucket = buckets_[IndexOf(contact.id)];
  // A new bucket is not stale: its first contact came out of a search just now.
  if (bucket.looked_up.unset()) bucket.looked_up = now;
  if (const auto it = FindIn(bucket.entries, contact.id); it != bucket.entries.end()) {
    it->contact = contact;
    it->heard = now;
    it->failures = 0;
    it->round_trips.Add(rtt);
    // Longest silent first is the order in which members of a full bucket are put to the test.
    std::rotate(it, it + 1, bucket.entries.end());
    return {};
  }
  // Its round trip holds a handshake, as that of the next unknown peer will.
  first_answers_.Add(rtt);
  Entry entry{contact, now, {}, 0};
  entry.round_trips.Add(rtt);
  if (const auto it = FindIn(bucket.waiting, contact.id); it != bucket.waiting.end()) {
    bucket.waiting.erase(it);
  }
  if (bucket.entries.size() < config_.k || AmongNearest(contact.id)) {
    bucket.entries.push_back(std::move(entry));
    ++size_;
    return {true, std::nullopt};
  }
  // Peers that have been up for long stay up longest (Kademlia 2.2), so a newcomer waits.
  bucket.waiting.push_back(std::move(entry));
  // The oldest one waiting is the least sure to be alive.
  if (bucket.waiting.size() > config_.replacements) bucket.waiting.erase(bucket.waiting.begin());
  Entry& oldest = bucket.entries.front();
  // A member that was heard a moment ago is alive, and a crowd of newcomers must not have it
  // pinged.
  if (now - oldest.heard < config_.quiet_before_ping) return {};
  return {false, oldest.contact};
}

bool RoutingTable::OnRequest(Time now, const Contact& contact) {
  if (contact.id == self_ || contact.id.none()) return false;
  Bucket* const bucket = FindBucket(contact.id);
  // A bucket that is not there has room.
  if (bucket == nullptr) return true;
  if (const auto it = FindIn(bucket->entries, contact.id); it != bucket->entries.end()) {
    it->contact = contact;
    it->heard = now;
    std::rotate(it, it + 1, bucket->entries.end());
    return false;
  }
  return bucket->entries.size() < config_.k || AmongNearest(contact.id);
}

bool RoutingTable::OnFailure(const PeerId& id) {
  Bucket* const bucket = FindBucket(id);
  if (bucket == nullptr) return false;
  const auto it = FindIn(bucket->entries, id);
  if (it == bucket->entries.end()) return false;
  ++it->failures;
  // Nobody waits for its place: an uncertain contact is worth more than none.
  if (it->failures + (bucket->waiting.empty() ? 0 : 1) <= config_.failures_allowed) return false;
  return Remove(id);
}

bool RoutingTable::Remove(const PeerId& id) {
  Bucket* const bucket = FindBucket(id);
  if (bucket == nullptr) return false;
  // Also there: a dead peer must not be promoted into the place that it leaves.
  std::erase_if(bucket->waiting, [&](const Entry& entry) { return entry.contact.id == id; });
  const auto it = FindIn(bucket->entries, id);
  const bool found = it != bucket->entries.end();
  if (found) {
    bucket->entries.erase(it);
    --size_;
    Promote(*bucket);
  }
  EraseIfEmpty(IndexOf(id));
  return found;
}

void RoutingTable::Promote(Bucket& bucket) {
  if (bucket.waiting.empty() || bucket.entries.size() >= config_.k) return;
  // Newest first: it proved itself alive last. It goes to the silent end, being unproven since.
  promoted_.push_back(bucket.waiting.back().contact.id);
  bucket.entries.insert(bucket.entries.begin(), std::move(bucket.waiting.back()));
  bucket.waiting.pop_back();
  ++size_;
}

void RoutingTable::EraseIfEmpty(int index) {
  const auto it = buckets_.find(index);
  if (it != buckets_.end() && it->second.entries.empty() && it->second.waiting.empty()) {
    buckets_.erase(it);
  }
}

std::optional<Contact> RoutingTable::Find(const PeerId& id) const {
  const Bucket* const bucket = FindBucket(id);
  if (bucket == nullptr) return std::nullopt;
  const auto it = FindIn(bucket->entries, id);
  if (it == bucket->entries.end()) return std::nullopt;
  return it->contact;
}

// Would `id` be among the k contacts nearest to ourselves? Deeper buckets are nearer, so it is
// enough to count those, and the nearer ones of its own bucket.
bool RoutingTable::AmongNearest(const PeerId& id) const {
  const int index = IndexOf(id);
  const Key self = PointOf(self_);
  size_t nearer = 0;
  for (auto it = buckets_.lower_bound(index); it != buckets_.end(); ++it) {
    if (it->first > index) {
      nearer += it->second.entries.size();
      continue;
    }
    for (const Entry& entry : it->second.entries) nearer += Closer(self, entry.contact.id, id);
  }
  return nearer < config_.k;
}

std::vector<Contact> RoutingTable::Nearest(const Key& target, size_t n) const {
  // Sorted by the distance's first 64 bits: this is the node's hottest loop, and comparing whole
  // ids took most of it. Equal ones, rare unless somebody makes them, are told apart in full.
  std::vector<std::pair<uint64_t, const Contact*>> all;
  all.reserve(size_);
  for (const auto& [index, bucket] : buckets_) {
    for (const Entry& entry : bucket.entries) {
      all.emplace_back(Prefix(target) ^ Prefix(PointOf(entry.contact.id)), &entry.contact);
    }
  }
  n = std::min(n, all.size());
  const auto nearer = [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    return Closer(target, a.second->id, b.second->id);
  };
  const auto middle = all.begin() + static_cast<ptrdiff_t>(n);
  if (n < all.size()) std::nth_element(all.begin(), middle, all.end(), nearer);
  std::sort(all.begin(), middle, nearer);
  std::vector<Contact> out;
  out.reserve(n);
  for (size_t i = 0; i < n; ++i) out.push_back(*all[i].second);
  return out;
}

Duration RoutingTable::SlowAfter(const PeerId& id) const {
  // A first answer holds the connection's making, so it has an estimate and a floor of its own.
  Duration p95 = first_answers_.empty()
                     ? config_.first_rtt
                     : std::max(first_answers_.Percentile95(), config_.min_first);
  if (const Bucket* const bucket = FindBucket(id); bucket != nullptr) {
    const auto it = FindIn(bucket->entries, id);
    if (it != bucket->entries.end() && !it->round_trips.empty()) {
      p95 = it->round_trips.Percentile95();
    }
  }
  return std::clamp(p95, config_.min_rtt, config_.max_rtt);
}

std::vector<int> RoutingTable::StaleBuckets(Time before) const {
  std::vector<int> out;
  for (const auto& [index, bucket] : buckets_) {
    if (bucket.looked_up < before) out.push_back(index);
  }
  return out;
}

void RoutingTable::MarkLookup(const Key& target, Time now) {
  const auto it = buckets_.find(CommonPrefix(PointOf(self_), target));
  if (it != buckets_.end()) it->second.looked_up = now;
}

size_t RoutingTable::MemoryBytes() const {
  size_t bytes = sizeof *this;
  for (const auto& [index, bucket] : buckets_) {
    bytes += sizeof(Bucket) + 48;  // map node
    bytes += (bucket.entries.capacity() + bucket.waiting.capacity()) * sizeof(Entry);
    for (const Entry& entry : bucket.entries) {
      // Shorter ones live inside the string itself.
      if (entry.contact.endpoint.capacity() > 15) bytes += entry.contact.endpoint.capacity() + 1;
    }
  }
  return bytes;
}

}  // namespace crowdsurf::dht
