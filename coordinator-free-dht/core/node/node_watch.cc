// Node: watching keys at their nearest holders.
#include <algorithm>
#include <utility>

#include "coordinator-free-dht/core/node/node.h"
#include "coordinator-free-dht/core/node/node_metrics.h"
#include "coordinator-free-dht/core/wire/codec.h"

namespace crowdsurf::dht {
namespace {

// A record of the same public key and another boot.
std::map<PeerId, RecordPtr>::iterator OtherBoot(std::map<PeerId, RecordPtr>& seen,
                                                const Record& record) {
  return std::find_if(seen.begin(), seen.end(), [&](const auto& item) {
    return item.second->public_key == record.public_key && item.second->boot != record.boot;
  });
}

}  // namespace

bool Node::Watch(const Clocks& raw, const Key& key, Actions& out) {
  const Clocks at = Enter(raw);
  if (watches_.contains(key)) return true;
  // Each costs its holders a push a change; more of them is a caller's mistake.
  if (watches_.size() >= config_.watches) return false;
  watches_.try_emplace(key);
  replicas_.Follow(key);
  std::vector<RecordPtr> held = store_.Find(at.wall, key);
  if (const auto own = own_.find(key); own != own_.end()) held.push_back(own->second.record);
  Deliver(at.wall, key, held, Trust::kVerified, out);
  // At once at the nearest that we know, and better ones when the lookup has found them.
  SyncWatch(at, key, out);
  LookUpHolders(at, out);
  return true;
}

void Node::Unwatch(Time now, const Key& key, Actions& out) {
  const auto watch = watches_.find(key);
  if (watch == watches_.end()) return;
  for (const Contact& contact : replicas_.Of(key).others) {
    const auto holder = watch->second.holders.find(contact.id);
    if (holder == watch->second.holders.end() || holder->second.state != Asked::kActive) continue;
    SendRequest(now, contact, FireAndForget{}, WatchRequest{key, Duration(), {}}, out);
  }
  watches_.erase(watch);
  replicas_.Unfollow(key);
}

// Subscribes at the nearest holders that are not subscribed at yet. One that refused or failed, or
// is slow, does not count: the next nearest is asked as well.
void Node::SyncWatch(const Clocks& at, const Key& key, Actions& out) {
  WatchState& watch = watches_.at(key);
  size_t counted = 0;
  for (const Contact& contact : replicas_.Of(key).others) {
    if (counted == config_.watch_holders) break;
    const auto holder = watch.holders.find(contact.id);
    if (holder == watch.holders.end()) {
      AskToWatch(at, key, contact, watch, out);
      ++counted;
    } else if (holder->second.state == Asked::kWaiting || holder->second.state == Asked::kActive) {
      ++counted;
    }
  }
  if (watch.synced || !NowSynced(key, watch)) return;
  watch.synced = true;
  out.emplace_back(WatchUpdate{key, {}, true});
}

void Node::SyncWatches(const Clocks& at, Actions& out) {
  for (const auto& [key, watch] : watches_) SyncWatch(at, key, out);
}

bool Node::NowSynced(const Key& key, const WatchState& watch) const {
  // Before the first lookup the true holders may be others.
  if (!replicas_.Known(key)) return false;
  // It may be the one that holds the records: others that are as new hold none.
  if (seeds_.AwaitingFirstAnswers()) return false;
  bool active = false;
  bool slow = false;
  for (const auto& [id, holder] : watch.holders) {
    // Its answer may yet hold records: only then does a missing one not exist.
    if (holder.state == Asked::kWaiting) return false;
    active = active || holder.state == Asked::kActive;
    slow = slow || holder.state == Asked::kSlow;
  }
  // All have refused or failed: there is nobody to wait for. A slow one alone may yet answer.
  return active || !slow;
}

void Node::AskToWatch(const Clocks& at, const Key& key, const Contact& holder, WatchState& watch,
                      Actions& out) {
  std::erase_if(watch.seen, [&](const auto& item) { return item.second->expiry <= at.wall; });
  WatchRequest request{key, config_.watch_life, {}};
  for (const auto& [subkey, record] : watch.seen) {
    // Beyond this the holder sends some records again; that is all.
    if (request.have.size() == kMaxHave) break;
    request.have.push_back({subkey, record->sequence});
  }
  Holder& state = watch.holders[holder.id];
  // A renewal stays active while it is under way: pushes go on.
  if (state.state != Asked::kActive) state.state = Asked::kWaiting;
  state.renew = at.now + config_.watch_renew;
  WakeBy(state.renew);
  if (SendRequest(at.now, holder, WatchAsk{key}, std::move(request), out)) return;
  // Too many requests are open; it is asked again at the rhythm of renewals.
  state.state = Asked::kNo;
}

void Node::RenewWatches(const Clocks& at, Actions& out) {
  for (auto& [key, watch] : watches_) {
    size_t counted = 0;
    std::map<PeerId, Holder> kept;
    for (const Contact& contact : replicas_.Of(key).others) {
      const auto holder = watch.holders.find(contact.id);
      if (holder == watch.holders.end()) continue;
      // Beyond the nearest few: not renewed, ends by itself. One that said no may be asked again.
      if (holder->second.renew <= at.now && holder->second.state == Asked::kNo) continue;
      if (holder->second.renew <= at.now && counted >= config_.watch_holders) continue;
      if (holder->second.renew <= at.now && holder->second.state == Asked::kActive) {
        AskToWatch(at, key, contact, watch, out);
      }
      if (holder->second.state != Asked::kNo) ++counted;
      kept.emplace(*holder);
    }
    // One that is not among the nearest any more is let go without a word: it ends by itself.
    watch.holders = std::move(kept);
    SyncWatch(at, key, out);
    for (const auto& [id, holder] : watch.holders) {
      if (holder.state == Asked::kActive || holder.state == Asked::kNo) WakeBy(holder.renew);
    }
  }
}

void Node::OnWatchReply(const Clocks& at, const Contact& from, const Key& key,
                        const WatchReply& reply, Actions& out) {
  const auto watch = watches_.find(key);
  if (watch == watches_.end()) return;
  Deliver(at.wall, key, reply.records, Trust::kUnverified, out);
  const auto holder = watch->second.holders.find(from.id);
  if (holder == watch->second.holders.end()) return;
  holder->second.state = reply.accepted ? Asked::kActive : Asked::kNo;
  holder->second.renew = at.now + config_.watch_renew;
  WakeBy(holder->second.renew);
  SyncWatch(at, key, out);
}

void Node::OnPush(const Clocks& at, const Contact& from, const WatchPush& push, Actions& out) {
  std::map<Key, std::vector<RecordPtr>> by_key;
  for (const RecordPtr& record : push.records) by_key[record->key].push_back(record);
  for (const auto& [key, records] : by_key) {
    if (watches_.contains(key)) {
      Deliver(at.wall, key, records, Trust::kUnverified, out);
      continue;
    }
    metrics_->pushes_unwanted.Add();
    // It missed our end of watch: say it again.
    SendRequest(at.now, from, FireAndForget{}, WatchRequest{key, Duration(), {}}, out);
  }
}

void Node::Deliver(WallTime wall, const Key& key, const std::vector<RecordPtr>& records,
                   Trust trust, Actions& out) {
  const auto watch = watches_.find(key);
  if (watch == watches_.end()) return;
  WatchUpdate update{key, {}, watch->second.synced};
  auto& seen = watch->second.seen;
  for (const RecordPtr& record : records) {
    if (record->key != key || record->expiry <= wall) continue;
    const auto known = seen.find(record->subkey);
    if (known != seen.end() && !Newer(*record, *known->second)) continue;
    const auto other = known != seen.end() ? seen.end() : OtherBoot(seen, *record);
    if (other != seen.end() && other->second->boot > record->boot) continue;
    // Holders that make up owners would else fill this node's memory.
    const bool fresh = known == seen.end() && other == seen.end();
    if (fresh && seen.size() >= config_.key_records) continue;
    if (trust == Trust::kUnverified && !Genuine(wall, *record)) continue;
    if (other != seen.end()) seen.erase(other);
    seen[record->subkey] = record;
    update.records.push_back(record);
  }
  // Old news is none: three holders push each change.
  if (!update.records.empty()) out.push_back(std::move(update));
}

}  // namespace crowdsurf::dht
