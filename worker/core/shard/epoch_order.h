// EpochOrder: the order of an epoch's samples, a seeded permutation that nobody has to hold.
//
// A Feistel network over the least power of four that holds all indices, walked until the result is
// an index ("cycle walking", Black and Rogaway 2002): a bijection by construction, equal on all
// machines. The rounds are SplitMix64's finalizer: it spreads, it keeps no secret. Values; any
// thread. python/crowdsurf/epoch_order.py computes the same. Source: docs/shard.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace crowdsurf::worker {

class EpochOrder {
 public:
  // Pre: 1 <= samples <= 2^48.
  EpochOrder(uint64_t samples, uint64_t seed, uint64_t epoch);
  // The index in the data set at `position`. Pre: position < samples. Four walks at most on
  // average.
  uint64_t At(uint64_t position) const;

 private:
  static constexpr size_t kRounds = 6;  // four make it pseudo-random in theory; two to spare
  uint64_t samples_;
  uint32_t half_;  // bits
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace crowdsurf::worker
