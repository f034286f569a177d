#include "base/byte_pool.h"

#include <utility>

namespace crowdsurf {

Bytes BytePool::Take(size_t size) {
  Bytes bytes;
  if (size >= kMinBytes) {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) {
      bytes = std::move(waiting_.back());
      waiting_.pop_back();
      waiting_bytes_ -= bytes.capacity();
    }
  }
  // Too small a one would be copied where it grows.
  if (bytes.capacity() < size) bytes = Bytes();
  bytes.resize(size);  // clears only what is longer than it was
  return bytes;
}

void BytePool::Give(Bytes bytes) {
  if (bytes.capacity() < kMinBytes) return;
  const std::lock_guard lock(mutex_);
  if (waiting_bytes_ + bytes.capacity() > max_bytes_) return;
  waiting_bytes_ += bytes.capacity();
  waiting_.push_back(std::move(bytes));
}

std::shared_ptr<const Bytes> BytePool::Share(Bytes bytes) {
  return {new Bytes(std::move(bytes)), [pool = shared_from_this()](Bytes* shared) {
            const std::unique_ptr<Bytes> owned(shared);
            pool->Give(std::move(*owned));
          }};
}

size_t BytePool::waiting_bytes() const {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_;
}

}  // namespace crowdsurf
