#include "worker/core/shard/epoch_order.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // SplitMix64's increment
constexpr uint64_t kMostSamples = 1ULL << 48;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

EpochOrder::EpochOrder(uint64_t samples, uint64_t seed, uint64_t epoch) : samples_(samples) {
  CHECK(samples >= 1 && samples <= kMostSamples);
  half_ = std::max(1U, (static_cast<uint32_t>(std::bit_width(samples - 1)) + 1) / 2);
  const uint64_t start = Mix(seed ^ Mix(epoch + kGolden));
  for (size_t round = 0; round < kRounds; ++round)
    keys_[round] = Mix(start + (round + 1) * kGolden);
}

uint64_t EpochOrder::At(uint64_t position) const {
  CHECK(position < samples_);
  const uint64_t mask = (1ULL << half_) - 1;
  uint64_t index = position;
  do {
    uint64_t left = index >> half_;
    uint64_t right = index & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (Mix(right + key) & mask);
      left = right;
      right = next;
    }
    index = left << half_ | right;
  } while (index >= samples_);
  return index;
}

}  // namespace crowdsurf::worker
