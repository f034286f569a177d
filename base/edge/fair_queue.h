// FairQueue: a bounded queue in which sources take turns, so that none starves the others.
//
// Next gives the oldest item of the source that was served longest ago and has fewer than
// `max_running` items under way. A full queue drops the newest item of the source with the most
// waiting: a flood displaces itself. Pure; one thread. Bound: `capacity` items; O(sources) a call.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace crowdsurf {

template <class T>
class FairQueue {
 public:
  struct Turn {
    std::string source;
    T item;
  };

  // capacity, max_running: at least 1.
  FairQueue(size_t capacity, size_t max_running) : capacity_(capacity), max_running_(max_running) {}

  // The item that there is no room for, which may be `item` itself.
  std::optional<T> Push(const std::string& source, T item) {
    Source& mine = sources_[source];
    if (mine.waiting.empty()) order_.push_back(source);
    mine.waiting.push_back(std::move(item));
    if (++size_ <= capacity_) return std::nullopt;
    // A tie is the pusher's loss: who waits already keeps its place.
    Source* largest = &mine;
    std::string name = source;
    for (auto& [other, entry] : sources_) {
      if (entry.waiting.size() > largest->waiting.size()) largest = &entry, name = other;
    }
    std::optional<T> dropped(std::move(largest->waiting.back()));
    largest->waiting.pop_back();
    --size_;
    if (largest->waiting.empty()) order_.remove(name);
    Forget(name);
    return dropped;
  }

  // Its source has one more item under way until Done.
  std::optional<Turn> Next() {
    for (auto it = order_.begin(); it != order_.end(); ++it) {
      Source& entry = sources_[*it];
      if (entry.running >= max_running_) continue;
      Turn turn{*it, std::move(entry.waiting.front())};
      entry.waiting.pop_front();
      ++entry.running;
      --size_;
      order_.erase(it);
      if (!entry.waiting.empty()) order_.push_back(turn.source);
      return turn;
    }
    return std::nullopt;
  }
  void Done(const std::string& source) {
    --sources_[source].running;
    Forget(source);
  }

 private:
  struct Source {
    std::deque<T> waiting;
    size_t running = 0;
  };
  void Forget(const std::string& source) {
    const auto it = sources_.find(source);
    if (it->second.waiting.empty() && it->second.running == 0) sources_.erase(it);
  }

  const size_t capacity_, max_running_;
  size_t size_ = 0;  // waiting, of all sources
  std::map<std::string, Source> sources_;
  std::list<std::string> order_;  // those with something waiting; served longest ago first
};

}  // namespace crowdsurf
