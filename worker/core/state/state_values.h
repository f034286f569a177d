// State values: what a committed state is made of, as one run of bytes: the average, then an outer
// optimizer's velocity, if there is one.
//
// Views of memory that somebody else owns; any thread that may read or write it. A state without a
// velocity means one of zeros. Source: docs/outer-optimizer.md.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace crowdsurf::worker {

struct StateValues {
  std::span<const float> average;
  std::span<const float> velocity = {};  // as long as the average, or empty

  uint64_t elements() const { return average.size() + velocity.size(); }
  uint64_t bytes() const { return elements() * sizeof(float); }
  // Appends the bytes [offset, offset + count). Pre: they are within.
  void Append(uint64_t offset, uint64_t count, Bytes& out) const;
  // The same bytes where they lie, or a copy of them in `both` where they are of both halves. Valid
  // as long as the values and `both` are. Pre: they are within.
  ByteView At(uint64_t offset, uint64_t count, Bytes& both) const;
};

// Where a state that arrives is put.
struct StatePlaces {
  std::span<float> average;
  std::span<float> velocity = {};

  // Pre: [offset, offset + bytes) is within.
  void Write(uint64_t offset, ByteView bytes) const;
};

}  // namespace crowdsurf::worker
