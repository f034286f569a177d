// RandomVector: the parameters that the tests of the state transfer send around.
//
// Equal for equal seeds. Kept for the life of the program: most of the time of these tests would be
// random numbers. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace crowdsurf::worker {

inline const std::vector<float>& RandomVector(uint64_t seed, size_t elements) {
  static std::map<std::pair<uint64_t, size_t>, std::vector<float>> made;
  std::vector<float>& v = made[{seed, elements}];
  if (!v.empty()) return v;
  Rng rng(seed);
  v.resize(elements);
  for (float& x : v) x = static_cast<float>(rng.UniformDouble());
  return v;
}

}  // namespace crowdsurf::worker
