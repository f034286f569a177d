// Pairs: each kernel over tensor bytes beside its hand-written twin, and what an oracle says of
// both.
//
// Purpose: the data of bench_kernels. What a pair reads is made once and belongs to Inputs, which
// must outlive the pairs; what it writes belongs to a Side. Pure but for Side; one thread. A chunk
// has 128 KiB of float32. Source: ours.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace crowdsurf::bench {

using Floats = std::vector<float>;

// What one side of a pair writes. Its values are the sums that a kernel adds to.
struct Side {
  Side();

  Floats values;
  Bytes bytes;
  bool finite = false;
};

struct Pair {
  std::string name;
  Floats want_values;  // of the oracle; empty: no float is written
  Bytes want_bytes;    // the same; empty: no byte is. Neither: `finite` is true
  std::function<void(Side&)> kernel, hand;
};

// Finite values far beyond the largest float16 and down to its subnormal ones, and what the oracle
// makes of them.
struct Inputs {
  Inputs();

  Floats values;
  Bytes halves, brains, int8;
};

// Pre: hand::Works(). O(values).
std::vector<Pair> Pairs(const Inputs& inputs);

// No value that is not finite gets past a kernel or its twin; bytes of dithered changes are within
// a step of the values. Pre: hand::Works().
bool RefusesInfinity(const Inputs& inputs);
bool DitherIsSmall(const Inputs& inputs);

}  // namespace crowdsurf::bench
