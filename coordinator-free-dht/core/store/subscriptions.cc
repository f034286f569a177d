#include "coordinator-free-dht/core/store/subscriptions.h"

#include <algorithm>

namespace crowdsurf::dht {

bool Subscriptions::Add(Time now, const Key& key, const Contact& watcher, Duration life) {
  // Watchers that died unheard are forgotten after this, however long they asked for.
  const Time until = now + std::min(life, config_.watch_life);
  if (const auto it = by_key_.find(key); it != by_key_.end()) {
    const auto found = it->second.find(watcher.id);
    if (found != it->second.end()) {
      // One that had ended and was not swept yet is new: it may have missed pushes meanwhile.
      const bool ended = found->second.until <= now;
      found->second = {watcher, ended ? now : found->second.since, until};
      return true;
    }
    // After the renewal: a full key keeps those that it has.
    if (it->second.size() >= config_.watchers_per_key) return false;
  }
  const auto keys = keys_of_.find(watcher.id);
  if (size_ >= config_.watchers) return false;
  // Before anything is added, so that a refusal leaves no empty key behind.
  if (keys != keys_of_.end() && keys->second >= config_.watcher_keys) return false;
  by_key_[key].emplace(watcher.id, Subscription{watcher, now, until});
  ++keys_of_[watcher.id];
  ++size_;
  return true;
}

void Subscriptions::Forget(const PeerId& watcher) {
  --size_;
  const auto keys = keys_of_.find(watcher);
  if (--keys->second == 0) keys_of_.erase(keys);
}

void Subscriptions::Remove(const Key& key, const PeerId& watcher) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end() || it->second.erase(watcher) == 0) return;
  Forget(watcher);
  if (it->second.empty()) by_key_.erase(it);
}

void Subscriptions::RemoveWatcher(const PeerId& watcher) {
  // Most peers that go down watch nothing here, and there are many keys.
  if (!keys_of_.contains(watcher)) return;
  for (auto it = by_key_.begin(); it != by_key_.end();) {
    if (it->second.erase(watcher) > 0) Forget(watcher);
    it = it->second.empty() ? by_key_.erase(it) : std::next(it);
  }
}

void Subscriptions::Sweep(Time now) {
  for (auto it = by_key_.begin(); it != by_key_.end();) {
    std::erase_if(it->second, [&](const auto& item) {
      if (item.second.until > now) return false;
      Forget(item.first);
      return true;
    });
    it = it->second.empty() ? by_key_.erase(it) : std::next(it);
  }
}

std::vector<Subscriptions::Watcher> Subscriptions::Watchers(Time now, const Key& key) const {
  std::vector<Watcher> out;
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return out;
  for (const auto& [id, subscription] : it->second) {
    // The sweep may be late; nobody is pushed to beyond its time.
    if (subscription.until > now) out.push_back({subscription.watcher, subscription.since});
  }
  return out;
}

size_t Subscriptions::MemoryBytes() const {
  return sizeof *this + size_ * (sizeof(PeerId) + sizeof(Subscription) + 48) +
         by_key_.size() * (sizeof(Key) + 96) + keys_of_.size() * (sizeof(PeerId) + 56);
}

}  // namespace crowdsurf::dht
