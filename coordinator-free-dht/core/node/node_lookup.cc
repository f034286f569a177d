// Node: iterative lookups, what they are for, and the upkeep of the routing table.
#include <utility>

#include "coordinator-free-dht/core/node/node.h"
#include "coordinator-free-dht/core/node/node_metrics.h"

namespace crowdsurf::dht {

void Node::StartLookup(const Clocks& at, const Key& target, LookupPurpose purpose, Actions& out) {
  if (lookups_.size() < config_.lookups && !Hopeful()) {
    RunLookup(at, target, std::move(purpose), table_.Nearest(target, config_.k), out);
    return;
  }
  // A burst of searches waits instead of making the time-outs of all of them wrong.
  if (waiting_.size() < config_.lookups_waiting) {
    waiting_.push_back({target, std::move(purpose)});
    return;
  }
  metrics_->lookups_shed.Add();
  // It ends with nothing instead of never: each Get has exactly one GetDone.
  Finish(at, {Lookup(target, self_.contact.id, config_, {}), std::move(purpose)}, out);
}

void Node::RunLookup(const Clocks& at, const Key& target, LookupPurpose purpose,
                     const std::vector<Contact>& start, Actions& out) {
  const uint64_t id = next_lookup_++;
  table_.MarkLookup(target, at.now);
  lookups_.emplace(
      id, RunningLookup{Lookup(target, self_.contact.id, config_, start), std::move(purpose)});
  Advance(at, id, out);
}

void Node::Advance(const Clocks& at, uint64_t lookup, Actions& out) {
  const auto running = lookups_.find(lookup);
  Lookup& search = running->second.lookup;
  const bool values = std::holds_alternative<ForGet>(running->second.purpose);
  while (const auto contact = search.Next()) {
    const bool sent = SendRequest(at.now, *contact, LookupQuery{lookup},
                                  FindRequest{search.target(), values}, out);
    // Too many requests are open. The search goes on with the others or ends; it never hangs.
    if (!sent) search.OnFailure(contact->id);
  }
  bool done = search.Done();
  if (const auto* get = std::get_if<ForGet>(&running->second.purpose)) {
    done = done || (get->enough > 0 && get->holders >= get->enough);
  }
  if (!done) return;
  RunningLookup finished = std::move(running->second);
  // Before Finish, so that its place is free for a search that Finish starts.
  lookups_.erase(running);
  metrics_->lookups.Add();
  Finish(at, std::move(finished), out);
  PumpWaiting(at, out);
}

void Node::PumpWaiting(const Clocks& at, Actions& out) {
  // A search that ends at once would call this again, once a depth for each that waits.
  if (pumping_) return;
  pumping_ = true;
  while (!waiting_.empty() && lookups_.size() < config_.lookups && !Hopeful()) {
    WaitingLookup next = std::move(waiting_.front());
    waiting_.pop_front();
    RunLookup(at, next.target, std::move(next.purpose), table_.Nearest(next.target, config_.k),
              out);
  }
  pumping_ = false;
}

void Node::OnQueryReply(const Clocks& at, uint64_t lookup, const PeerId& from,
                        const FindReply& reply, Actions& out) {
  const auto running = lookups_.find(lookup);
  if (running == lookups_.end()) return;
  running->second.lookup.OnSuccess(from, reply.contacts);
  if (auto* get = std::get_if<ForGet>(&running->second.purpose)) {
    if (MergeForGet(at.wall, running->second.lookup.target(), reply.records, *get)) ++get->holders;
  }
  Advance(at, lookup, out);
}

bool Node::MergeForGet(WallTime wall, const Key& target, const std::vector<RecordPtr>& records,
                       ForGet& get) {
  bool good = false;
  for (const RecordPtr& record : records) {
    if (record->key != target || record->expiry <= wall) continue;
    const auto known = get.records.find(record->subkey);
    // Another holder of a known record counts for `enough`, and costs no verification.
    if (known != get.records.end() && *record == *known->second) good = true;
    if (known != get.records.end() && !Newer(*record, *known->second)) continue;
    // Holders that make up owners would else fill this node's memory.
    if (known == get.records.end() && get.records.size() >= config_.key_records) continue;
    if (!Genuine(wall, *record)) continue;
    get.records[record->subkey] = record;
    good = true;
  }
  return good;
}

void Node::Finish(const Clocks& at, RunningLookup done, Actions& out) {
  const Key target = done.lookup.target();
  if (auto* get = std::get_if<ForGet>(&done.purpose)) {
    GetDone result{get->get, target, {}};
    for (auto& [subkey, record] : get->records) {
      if (record->expiry > at.wall) result.records.push_back(std::move(record));
    }
    out.push_back(std::move(result));
  } else if (std::holds_alternative<ForHolders>(done.purpose)) {
    replicas_.OnLookedUp(at.now, target, done.lookup.Nearest());
    WakeBy(replicas_.NextDeadline());
    if (const auto own = own_.find(target); own != own_.end()) {
      // A new look at the holders is a new chance for those that failed.
      std::erase_if(own->second.placed,
                    [](const auto& item) { return item.second == Placed::kFailed; });
      SyncOwn(at, target, out);
    }
    if (watches_.contains(target)) SyncWatch(at, target, out);
  } else if (const auto* table = std::get_if<ForTable>(&done.purpose)) {
    // Fewer than k answered: that was everybody, there are no far buckets to fill.
    if (table->join && !joined_ && done.lookup.Nearest().size() >= config_.k) {
      joined_ = true;
      FillFarBuckets(at, out);
    }
  } else if (std::holds_alternative<ForRepublish>(done.purpose)) {
    const std::vector<RecordPtr> records = store_.Find(at.wall, target);
    // They expired while the search ran.
    if (records.empty()) return;
    for (const Contact& holder : done.lookup.Nearest()) {
      SendRequest(at.now, holder, FireAndForget{}, StoreRequest{records}, out);
    }
  }
}

uint64_t Node::Get(const Clocks& raw, const Key& key, size_t enough, Actions& out) {
  const Clocks at = Enter(raw);
  ForGet get{next_get_++, enough, 0, {}};
  for (RecordPtr& record : store_.Find(at.wall, key))
    get.records[record->subkey] = std::move(record);
  if (const auto own = own_.find(key); own != own_.end() && own->second.until > at.now) {
    get.records[self_.contact.id] = own->second.record;
  }
  // This node is one of the holders, as `enough` counts them.
  if (!get.records.empty()) get.holders = 1;
  const uint64_t id = get.get;
  if (enough > 0 && get.holders >= enough) {
    Finish(at, {Lookup(key, self_.contact.id, config_, {}), std::move(get)}, out);
  } else {
    StartLookup(at, key, std::move(get), out);
  }
  return id;
}

Key Node::RandomPointInBucket(int index) {
  std::array<uint8_t, 32> bytes = self_.contact.id.bytes();
  // The first `index` bits are ours, the next is not, the rest is random.
  const auto flip = static_cast<size_t>(index);
  for (size_t bit = flip; bit < 256; ++bit) {
    const auto mask = static_cast<uint8_t>(0x80 >> (bit % 8));
    const bool change = bit == flip || rng_.Bernoulli(0.5);
    if (change) bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ mask);
  }
  return Key(bytes);
}

// Kademlia 2.3: having found its neighbours, a new node refreshes all buckets further away.
void Node::FillFarBuckets(const Clocks& at, Actions& out) {
  for (int index = 0; index < table_.DeepestBucket(); ++index) {
    StartLookup(at, RandomPointInBucket(index), ForTable{}, out);
  }
}

void Node::OnCompany(Time now) {
  refresh_interval_ = config_.refresh_first;
  refresh_at_ = std::min(refresh_at_, now + refresh_interval_ * (0.5 + rng_.UniformDouble()));
  replicas_.Hurry(now);
  WakeBy(now);
}

void Node::RefreshTable(const Clocks& at, Actions& out) {
  if (table_.size() == 0) {
    // Nobody to ask: the first contact sets the time again (OnContactAdded).
    refresh_at_ = Time::Infinite();
    return;
  }
  // Of a newcomer it grows whatever is found: a crowd that comes together finds each other quickly,
  // one that comes for an hour does not keep everybody searching.
  const Duration next = refresh_interval_ * 2.0;
  const bool settled = refresh_interval_ >= config_.min_refresh;
  refresh_interval_ = settled && added_since_refresh_ > 0 ? config_.min_refresh
                                                          : std::min(next, config_.max_refresh);
  added_since_refresh_ = 0;
  // Jitter: a crowd that started together should not ask together.
  refresh_at_ = at.now + refresh_interval_ * (0.75 + 0.5 * rng_.UniformDouble());
  StartLookup(at, PointOf(self_.contact.id), ForTable{}, out);
  // Early in a node's life the interval would reach to before the clock's origin.
  const Time before = at.now - std::min(config_.bucket_refresh, at.now - Time());
  for (const int index : table_.StaleBuckets(before)) {
    StartLookup(at, RandomPointInBucket(index), ForTable{}, out);
  }
}

}  // namespace crowdsurf::dht
