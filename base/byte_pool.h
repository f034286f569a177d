// Byte pool: large buffers that are used again, so that chunks cost no clearing and no new pages.
//
// A buffer that is taken holds old bytes: its user writes all of it. The last one given is taken
// first, since it may lie in a cache still. Small buffers are not worth it
// and are made anew. Any thread. Bound: `max_bytes` wait to be taken; what is given beyond is
// freed.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"

namespace crowdsurf {

class BytePool : public std::enable_shared_from_this<BytePool> {
 public:
  static constexpr size_t kMinBytes = size_t{16} * 1024;  // below, malloc is as fast

  // 0: every buffer is made anew.
  explicit BytePool(size_t max_bytes) : max_bytes_(max_bytes) {}

  // `size` bytes of no particular value.
  Bytes Take(size_t size);
  void Give(Bytes bytes);
  // Gives them back when the last owner is gone. Pre: a shared_ptr owns the pool.
  std::shared_ptr<const Bytes> Share(Bytes bytes);

  size_t waiting_bytes() const;

 private:
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::vector<Bytes> waiting_;
  size_t waiting_bytes_ = 0;  // their capacities
};

}  // namespace crowdsurf
