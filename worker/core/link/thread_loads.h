// Thread loads: which of several threads takes the next connection.
//
// Owner: TensorTransport, whose connections each live on one I/O thread. The thread with the fewest
// takes it, the first one of those: peers come one after the other, so they spread evenly, whatever
// their ids are. A connection stays where it is until it ends. Pure, single sequence. O(threads).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace crowdsurf::worker {

class ThreadLoads {
 public:
  // Pre: threads > 0.
  explicit ThreadLoads(size_t threads) : loads_(threads, 0) { CHECK_GT(threads, 0U); }

  // The thread that takes one more.
  [[nodiscard]] size_t Place() {
    const auto least = std::min_element(loads_.begin(), loads_.end());
    ++*least;
    return static_cast<size_t>(least - loads_.begin());
  }
  // One that was placed there has ended.
  void Leave(size_t thread) {
    CHECK_GT(loads_.at(thread), 0U);
    --loads_[thread];
  }
  const std::vector<size_t>& loads() const { return loads_; }

 private:
  std::vector<size_t> loads_;
};

}  // namespace crowdsurf::worker
