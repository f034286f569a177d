// Send queues: what waits for peers whose links take nothing now, and when it is tried again.
//
// Owner: the agent's send plane (worker/edge/tensor/send_plane.h), which sends; this decides. A
// peer's sends keep their order. One that leaves part by part yields after each part: it may be as
// long as a model, and may be renewed before its end, so that what is behind it would wait for
// ever. A link that is full says when it has drained; that word may be lost, so the sends are tried
// again after `retry` in any case. A link that fails softly has lost what it held, and says nothing
// any more: what waits here is tried on a new link after `after_failure`. A dead peer's sends are
// dropped. Inputs in, answers out; pure, single sequence.
// Bounds: bytes of a peer and of all; what does not fit is refused, and the owner counts it.
// Cost: O(log peers) a call; Find O(sends of the peer), TakeDue and NextDeadline O(peers with a
// closed gate).
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/id.h"
#include "base/time.h"

namespace crowdsurf::worker {

struct SendQueuesConfig {
  size_t peer_bytes = 32 << 20;
  size_t all_bytes = 256 << 20;
  Duration after_failure = Milliseconds(250);  // longer than a transport refuses a failed peer
  Duration retry = Seconds(1);                 // of a full link that says nothing
};

template <class Item>
class SendQueues {
 public:
  explicit SendQueues(SendQueuesConfig config = {}) : config_(config) {}

  // False: refused, a bound is reached. `bytes`: what the item holds while it waits.
  [[nodiscard]] bool Push(const PeerId& to, Item item, size_t bytes) {
    Queue& queue = queues_[to];
    if (queue.bytes + bytes > config_.peer_bytes || bytes_ + bytes > config_.all_bytes) {
      Settle(to);
      return false;
    }
    queue.bytes += bytes;
    bytes_ += bytes;
    ++size_;
    queue.items.push_back({std::move(item), bytes});
    return true;
  }

  // The send to be tried now; nullptr: there is none, or its link takes nothing. After a try the
  // owner calls Pop, Yield, OnFull or OnFailed.
  Item* Next(const PeerId& to) {
    const auto it = queues_.find(to);
    if (it == queues_.end() || it->second.items.empty() || it->second.closed()) return nullptr;
    return &it->second.items.front().item;
  }
  // The first that waits for `to` and matches; nullptr: none.
  template <class Predicate>
  Item* Find(const PeerId& to, Predicate matches) {
    const auto it = queues_.find(to);
    if (it == queues_.end()) return nullptr;
    for (Waiting& waiting : it->second.items) {
      if (matches(waiting.item)) return &waiting.item;
    }
    return nullptr;
  }

  // The first send is done with. Pre: there is one.
  void Pop(const PeerId& to) {
    Queue& queue = queues_.at(to);
    CHECK(!queue.items.empty());
    queue.bytes -= queue.items.front().bytes;
    bytes_ -= queue.items.front().bytes;
    --size_;
    queue.items.pop_front();
    Settle(to);
  }
  // A part of the first send has left: the rest waits behind all others. Pre: there is one.
  void Yield(const PeerId& to) {
    std::deque<Waiting>& items = queues_.at(to).items;
    CHECK(!items.empty());
    if (items.size() == 1) return;
    Waiting first = std::move(items.front());
    items.pop_front();
    items.push_back(std::move(first));
  }
  // The link took nothing; it says when it has drained.
  void OnFull(Time now, const PeerId& to) { queues_[to].until = now + config_.retry; }
  void OnDrained(const PeerId& to) { Open(to); }
  // The link failed and the peer may live.
  void OnFailed(Time now, const PeerId& to) { queues_[to].until = now + config_.after_failure; }
  // The peer is dead: drops what waits for it. The number of sends dropped.
  size_t Drop(const PeerId& to) {
    const auto it = queues_.find(to);
    if (it == queues_.end()) return 0;
    const size_t dropped = it->second.items.size();
    bytes_ -= it->second.bytes;
    size_ -= dropped;
    queues_.erase(it);
    return dropped;
  }

  // Peers with sends whose links are to be tried again, though nothing said so.
  std::vector<PeerId> TakeDue(Time now) {
    std::vector<PeerId> due;
    for (auto it = queues_.begin(); it != queues_.end();) {
      const auto at = it++;
      if (!at->second.closed() || now < at->second.until) continue;
      if (!at->second.items.empty()) due.push_back(at->first);
      Open(at->first);
    }
    return due;
  }
  Time NextDeadline() const {
    Time next = Time::Infinite();
    for (const auto& [peer, queue] : queues_) {
      if (queue.closed()) next = std::min(next, queue.until);
    }
    return next;
  }

  size_t size() const { return size_; }    // sends that wait
  size_t bytes() const { return bytes_; }  // that they hold

 private:
  struct Waiting {
    Item item;
    size_t bytes;
  };
  struct Queue {
    std::deque<Waiting> items;
    size_t bytes = 0;
    Time until;  // nothing is tried before; unset: the link takes sends
    bool closed() const { return !until.unset(); }
  };

  void Open(const PeerId& to) {
    const auto it = queues_.find(to);
    if (it == queues_.end()) return;
    it->second.until = Time();
    Settle(to);
  }
  void Settle(const PeerId& to) {  // forgets a queue that says nothing
    const auto it = queues_.find(to);
    if (it->second.items.empty() && !it->second.closed()) queues_.erase(it);
  }

  const SendQueuesConfig config_;
  std::map<PeerId, Queue> queues_;
  size_t size_ = 0, bytes_ = 0;
};

}  // namespace crowdsurf::worker
