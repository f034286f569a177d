#include "operator/core/observe/work_queue.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::controller {

void WorkQueue::AddAt(const std::string& key, Time at) {
  ++adds_;
  // The turn under way may have read the state before this news, so the key comes once more.
  if (working_.contains(key)) {
    const auto [it, inserted] = again_.try_emplace(key, at);
    if (!inserted) it->second = std::min(it->second, at);
    return;
  }
  Schedule(key, at);
}

void WorkQueue::Schedule(const std::string& key, Time at) {
  const auto [it, inserted] = ready_at_.try_emplace(key, at);
  if (!inserted) {
    // The earlier instant wins: news must not wait for a timer.
    if (it->second <= at) return;
    in_order_.erase({it->second, key});
    it->second = at;
  }
  in_order_.emplace(at, key);
}

Duration WorkQueue::AddRateLimited(const std::string& key, Time now) {
  ++retries_;
  const Duration delay = kRetry.Delay(failures_[key]++, rng_);
  AddAt(key, now + delay);
  return delay;
}

std::optional<std::string> WorkQueue::Get(Time now) {
  if (in_order_.empty() || in_order_.begin()->first > now) return std::nullopt;
  waited_ = now - in_order_.begin()->first;
  std::string key = in_order_.begin()->second;
  in_order_.erase(in_order_.begin());
  ready_at_.erase(key);
  working_.insert(key);
  return key;
}

void WorkQueue::Done(const std::string& key) {
  CHECK_EQ(working_.erase(key), 1u);
  const auto it = again_.find(key);
  if (it == again_.end()) return;
  Schedule(key, it->second);
  again_.erase(it);
}

void WorkQueue::Drop(const std::string& key) {
  const auto it = ready_at_.find(key);
  if (it != ready_at_.end()) {
    in_order_.erase({it->second, key});
    ready_at_.erase(it);
  }
  // A key that is worked on stays so: its Done then finds nothing to come again for.
  again_.erase(key);
  failures_.erase(key);
}

Time WorkQueue::NextReady() const {
  return in_order_.empty() ? Time::Infinite() : in_order_.begin()->first;
}

}  // namespace crowdsurf::controller
