// The content hash on this processor against xxHash's own code as every x86-64
// runs it.
#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/rng.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace crowdsurf {
namespace {

TEST(ContentHash, IsXxh3OnEveryProcessor) {
  Rng rng(1);
  Bytes bytes(300'000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  for (size_t i = 0; i < 3000; ++i) {
    // Every small size, and larger ones that begin anywhere.
    const size_t size = i < 1500 ? i : rng.Uniform(bytes.size());
    const size_t begin = rng.Uniform(bytes.size() - size + 1);
    const uint64_t key = rng.Next();
    const ByteView view = ByteView(bytes).subspan(begin, size);
    ASSERT_EQ(ContentHash(view, key), XXH3_64bits_withSeed(view.data(), size, key)) << size;
  }
}

}  // namespace
}  // namespace crowdsurf
