#include "coordinator-free-dht/core/wire/key.h"

#include <bit>

namespace crowdsurf::dht {

int CommonPrefix(const Key& a, const Key& b) {
  for (size_t i = 0; i < Key::kBytes; ++i) {
    const auto difference = static_cast<uint8_t>(a.bytes()[i] ^ b.bytes()[i]);
    if (difference != 0) return static_cast<int>(8 * i) + std::countl_zero(difference);
  }
  // Only a point has so many bits in common with itself, so a routing table never has that bucket.
  return 256;
}

}  // namespace crowdsurf::dht
