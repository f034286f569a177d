// Mailbox: a bounded queue from many threads to one, the only way across a thread border.
//
// Post never blocks: a full mailbox refuses and counts, and the caller decides what a refusal means
// (a peer's message is dropped). PostWaiting pauses its thread instead, for a stream that must not
// lose anything. Take waits until something is there, a deadline passes, or Close. After Close,
// Post refuses and Take drains what is left. Bounds: a number of items, and where items differ in
// size their bytes, as the poster counts them; one item alone may exceed the bytes, or it could
// never pass. Any thread posts; one thread takes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

namespace crowdsurf {

template <class T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity, size_t max_bytes = std::numeric_limits<size_t>::max())
      : capacity_(capacity), max_bytes_(max_bytes) {}

  // False when full or closed; `item` is then untouched in meaning but may be moved from.
  [[nodiscard]] bool Post(T item, size_t bytes = 0) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || !HasRoom(bytes)) {
        ++refused_;
        return false;
      }
      Push(std::move(item), bytes);
    }
    ready_.notify_one();
    return true;
  }
  // Waits for room; false when closed.
  [[nodiscard]] bool PostWaiting(T item, size_t bytes = 0) {
    {
      std::unique_lock lock(mutex_);
      if (!closed_ && !HasRoom(bytes)) {
        ++waits_;
        room_.wait(lock, [&] { return closed_ || HasRoom(bytes); });
      }
      if (closed_) {
        ++refused_;
        return false;
      }
      Push(std::move(item), bytes);
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
    room_.notify_all();
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }
  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  uint64_t refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }
  // Times that a poster had to wait for room.
  uint64_t waits() const {
    const std::lock_guard lock(mutex_);
    return waits_;
  }

 private:
  struct Entry {
    T item;
    size_t bytes;
  };
  bool HasRoom(size_t bytes) const {
    if (items_.size() >= capacity_) return false;
    return items_.empty() || (bytes <= max_bytes_ && bytes_ <= max_bytes_ - bytes);
  }
  void Push(T item, size_t bytes) {
    items_.push_back({std::move(item), bytes});
    bytes_ += bytes;
  }
  std::optional<T> Pop() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front().item));
    bytes_ -= items_.front().bytes;
    items_.pop_front();
    // Who waits may need more room than this: each looks for itself.
    if (waits_ > 0) room_.notify_all();
    return item;
  }

  const size_t capacity_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable ready_, room_;
  std::deque<Entry> items_;
  size_t bytes_ = 0;
  uint64_t refused_ = 0;
  uint64_t waits_ = 0;
  bool closed_ = false;
};

}  // namespace crowdsurf
