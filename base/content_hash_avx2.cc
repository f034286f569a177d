// Compiled for AVX2 (CMakeLists.txt), so it includes nothing whose functions
// others share.
#include "base/content_hash_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace crowdsurf {

uint64_t ContentHashAvx2(const uint8_t* bytes, size_t size, uint64_t key) {
  return XXH3_64bits_withSeed(bytes, size, key);
}

}  // namespace crowdsurf
