// Extent: a range of the flat vector.
//
// A value; any thread. Unit: elements, not bytes.
#pragma once

#include <cstdint>

namespace crowdsurf::worker {

// Elements [begin, begin + count) of the flat vector.
struct Extent {
  uint64_t begin = 0;
  uint64_t count = 0;
  bool operator==(const Extent&) const = default;
};

}  // namespace crowdsurf::worker
