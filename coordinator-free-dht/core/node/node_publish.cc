// Node: publishing own records and keeping them at the nearest holders.
#include <utility>

#include "coordinator-free-dht/core/node/node.h"
#include "coordinator-free-dht/core/node/node_metrics.h"

namespace crowdsurf::dht {

PutResult Node::AdmitOwn(const Key& key, size_t bytes, Duration life) const {
  // By the holders' own rules: a value that they would refuse fails here, where its writer hears of
  // it.
  if (bytes > config_.value_bytes) return PutResult::kTooLarge;
  if (life <= Duration()) return PutResult::kExpired;
  if (life > config_.longest_life) return PutResult::kTooFar;
  const bool room = own_.contains(key) || own_.size() < config_.own_records;
  return room ? PutResult::kPublished : PutResult::kTooMany;
}

PutResult Node::Put(const Clocks& raw, const Key& key, Bytes value, Duration life, Actions& out) {
  const Clocks at = Enter(raw);
  const PutResult result = AdmitOwn(key, value.size(), life);
  metrics_->puts[static_cast<size_t>(result)]->Add();
  if (result != PutResult::kPublished) return result;
  // Once a key, since Follow counts and StopPublishing takes one away.
  if (!own_.contains(key)) replicas_.Follow(key);
  WriteOwn(at, key, std::move(value), at.now + life, out);
  LookUpHolders(at, out);
  if (sweep_at_.infinite()) {
    sweep_at_ = at.now + config_.sweep;
    WakeBy(sweep_at_);
  }
  return result;
}

void Node::WriteOwn(const Clocks& at, const Key& key, Bytes value, Time until, Actions& out) {
  Record record;
  record.key = key;
  record.subkey = self_.contact.id;
  record.boot = self_.boot;
  record.sequence = ++sequence_;
  record.written = at.wall;
  record.expiry = at.wall + (until - at.now);
  record.value = std::move(value);
  record.public_key = self_.public_key;
  record.signature = authority_->Sign(SignedBytes(record));
  own_[key] = OwnRecord{std::make_shared<const Record>(std::move(record)), until, {}, false};
  // A node that watches its own key hears of it at once.
  if (watches_.contains(key)) Deliver(at.wall, key, {own_[key].record}, Trust::kVerified, out);
  SyncOwn(at, key, out);
}

void Node::StopPublishing(const Key& key) {
  if (own_.erase(key) > 0) replicas_.Unfollow(key);
}

// Sends the own record of `key` to every current holder that it was not sent to.
void Node::SyncOwn(const Clocks& at, const Key& key, Actions& out) {
  OwnRecord& own = own_.at(key);
  // Holders would refuse it; the next sweep forgets it.
  if (own.until <= at.now) return;
  const ReplicaTracker::Holders holders = replicas_.Of(key);
  const bool known = replicas_.Known(key);
  for (size_t i = 0; i < holders.others.size(); ++i) {
    // Before the first lookup these may not be the nearest: a few copies serve the hasty, no more.
    if (!known && i >= config_.first_holders) break;
    const Contact& holder = holders.others[i];
    if (!own.placed.contains(holder.id)) SendOwn(at.now, holder, own, 1, out);
  }
  // Alone it is the holder, and a watcher that comes finds the record here.
  if (holders.self && (known || holders.others.empty())) {
    const Taken taken = TakeRecord(at, own.record, self_.contact.id);
    own.placed[self_.contact.id] = taken == Taken::kRefused ? Placed::kFailed : Placed::kStored;
    if (taken == Taken::kNew) TellWatchers(at, {own.record}, self_.contact.id, out);
  }
  ReportIfPlaced(key, out);
}

void Node::SendOwn(Time now, const Contact& to, OwnRecord& own, int attempt, Actions& out) {
  const bool sent = SendRequest(now, to, OwnStore{own.record->key, own.record->sequence, attempt},
                                StoreRequest{{own.record}}, out);
  // Failed at once when too many requests are open; the next lookup tries again.
  own.placed[to.id] = sent ? Placed::kSent : Placed::kFailed;
}

void Node::OnOwnStored(const PeerId& holder, const OwnStore& store, Placed placed, Actions& out) {
  const auto own = own_.find(store.key);
  if (own == own_.end() || own->second.record->sequence != store.sequence) return;
  const auto copy = own->second.placed.find(holder);
  if (copy == own->second.placed.end()) return;  // lost since
  copy->second = placed;
  ReportIfPlaced(store.key, out);
}

void Node::ReportIfPlaced(const Key& key, Actions& out) {
  OwnRecord& own = own_.at(key);
  if (own.reported || !replicas_.Known(key)) return;
  PutDone done{key, own.record->sequence, 0, 0};
  const ReplicaTracker::Holders holders = replicas_.Of(key);
  const auto count = [&](const PeerId& holder) {
    const auto placed = own.placed.find(holder);
    if (placed == own.placed.end() || placed->second == Placed::kSent) return false;
    ++(placed->second == Placed::kStored ? done.stored : done.failed);
    return true;
  };
  for (const Contact& holder : holders.others) {
    if (!count(holder.id)) return;  // not all have answered yet
  }
  if (holders.self && !count(self_.contact.id)) return;
  // Later holders are news of the network, not of this Put.
  own.reported = true;
  out.emplace_back(std::in_place_type<PutDone>, done);
}

}  // namespace crowdsurf::dht
