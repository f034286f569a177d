// Mailbox: a bounded queue from many threads to one, the only way across a thread border.
//
// Post never blocks: a full mailbox refuses and counts, and the caller decides what a refusal means
// (a peer's message is dropped, a stream is paused). Take waits until something is there, a
// deadline passes, or Close. After Close, Post refuses and Take drains what is left. Any thread
// posts; one thread takes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace crowdsurf {

template <class T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity) : capacity_(capacity) {}

  // False when full or closed; `item` is then untouched in meaning but may be moved from.
  [[nodiscard]] bool Post(T item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) {
        ++refused_;
        return false;
      }
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // The oldest item, or nullopt at `deadline` or when closed and empty.
  std::optional<T> Take(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    ready_.wait_until(lock, deadline, [&] { return !items_.empty() || closed_; });
    return Pop();
  }
  std::optional<T> TryTake() {
    const std::lock_guard lock(mutex_);
    return Pop();
  }

  void Close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }
  uint64_t refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

 private:
  std::optional<T> Pop() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  uint64_t refused_ = 0;
  bool closed_ = false;
};

}  // namespace crowdsurf
