// Trace: a running hash of all that happens in a world, in order.
//
// Two runs of a seed must end with the same value: that is what makes a seed a replay. Single
// sequence.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/digest.h"

namespace crowdsurf::simulator {

class Trace {
 public:
  void Add(uint64_t value) {
    hash_ ^= value + 0x9e3779b97f4a7c15ULL + (hash_ << 6) + (hash_ >> 2);
    hash_ *= 0xff51afd7ed558ccdULL;
  }
  void Add(ByteView bytes) { Add(ContentHash(bytes, hash_)); }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0x243f6a8885a308d3ULL;
};

}  // namespace crowdsurf::simulator
