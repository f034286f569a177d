#include "base/digest.h"

#include <openssl/sha.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace crowdsurf {

Digest Sha256(ByteView bytes) {
  std::array<uint8_t, 32> out;
  SHA256(bytes.data(), bytes.size(), out.data());
  return Digest(out);
}

uint64_t ContentHash(ByteView bytes, uint64_t key) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), key);
}

}  // namespace crowdsurf
