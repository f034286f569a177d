// Peers of tests: ids that say which is meant, in the order of their numbers.
//
// Id(n): the peer of the number n, its first byte. PeerAt(rank): the peer of that rank among such,
// counted from 0. Numbers up to 255. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/id.h"

namespace crowdsurf::worker {

inline PeerId Id(uint8_t n) {
  std::array<uint8_t, PeerId::kBytes> bytes{};
  bytes[0] = n;
  return PeerId(bytes);
}

inline PeerId PeerAt(size_t rank) { return Id(static_cast<uint8_t>(rank + 1)); }

}  // namespace crowdsurf::worker
