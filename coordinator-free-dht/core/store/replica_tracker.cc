#include "coordinator-free-dht/core/store/replica_tracker.h"

#include <algorithm>
#include <utility>

#include "coordinator-free-dht/core/routing/routing_table.h"

namespace crowdsurf::dht {

void ReplicaTracker::Unfollow(const Key& key) {
  const auto it = keys_.find(key);
  // A key may be published and watched; its holders are followed until both have ended.
  if (it != keys_.end() && --it->second.followers <= 0) keys_.erase(it);
}

std::vector<Key> ReplicaTracker::TakeDue(Time now) {
  std::vector<Key> out;
  for (auto& [key, state] : keys_) {
    if (state.looking || state.next_lookup > now) continue;
    state.looking = true;
    out.push_back(key);
  }
  return out;
}

void ReplicaTracker::OnLookedUp(Time now, const Key& key, std::vector<Contact> nearest) {
  const auto it = keys_.find(key);
  // Unfollowed while its lookup was running.
  if (it == keys_.end()) return;
  State& state = it->second;
  state.known = true;
  state.looking = false;
  state.found = std::move(nearest);
  state.interval = std::clamp(state.interval, config_.holders_first, config_.holders_refresh);
  // Jitter: followers of one key that started together would ask its holders together.
  state.next_lookup = now + state.interval * (0.75 + 0.5 * rng_.UniformDouble());
  state.interval = state.interval * 2.0;
}

void ReplicaTracker::Hurry(Time now) {
  for (auto& [key, state] : keys_) {
    // As if the key were new: the last lookup saw a smaller network.
    state.interval = Duration();
    state.next_lookup = now;
  }
}

bool ReplicaTracker::Known(const Key& key) const {
  const auto it = keys_.find(key);
  return it != keys_.end() && it->second.known;
}

void ReplicaTracker::Remove(const PeerId& id) {
  for (auto& [key, state] : keys_) {
    std::erase_if(state.found, [&](const Contact& contact) { return contact.id == id; });
  }
}

ReplicaTracker::Holders ReplicaTracker::Of(const Key& key) const {
  // The last lookup saw the key's neighbourhood, and the table sees later joins: both count.
  std::map<Distance, Contact> nearest;
  const auto add = [&](const Contact& contact) {
    nearest.try_emplace(DistanceBetween(key, PointOf(contact.id)), contact);
  };
  for (const Contact& contact : table_.Nearest(key, config_.k)) add(contact);
  if (const auto it = keys_.find(key); it != keys_.end()) {
    for (const Contact& contact : it->second.found) add(contact);
  }
  Holders out;
  const Distance own = DistanceBetween(key, PointOf(self_));
  for (const auto& [distance, contact] : nearest) {
    if (out.others.size() + (out.self ? 1 : 0) == config_.k) break;
    // This node is nearer than the rest, so it holds the key and takes one of the k places.
    if (!out.self && own < distance) {
      out.self = true;
      if (out.others.size() + 1 == config_.k) break;
    }
    out.others.push_back(contact);
  }
  if (out.others.size() < config_.k) out.self = true;
  return out;
}

Time ReplicaTracker::NextDeadline() const {
  Time next = Time::Infinite();
  for (const auto& [key, state] : keys_) {
    if (!state.looking) next = std::min(next, state.next_lookup);
  }
  return next;
}

size_t ReplicaTracker::MemoryBytes() const {
  size_t bytes = sizeof *this;
  for (const auto& [key, state] : keys_) {
    bytes += sizeof(Key) + sizeof(State) + 48 + state.found.capacity() * sizeof(Contact);
  }
  return bytes;
}

}  // namespace crowdsurf::dht
