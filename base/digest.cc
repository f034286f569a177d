#include "base/digest.h"

#include <openssl/evp.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/content_hash_avx2.h"

namespace crowdsurf {

Digest Sha256(ByteView bytes) {
  // Looked up once: SHA256() looks its algorithm up, under a lock, in every call.
  static const EVP_MD* const kAlgorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  CHECK(kAlgorithm != nullptr);
  std::array<uint8_t, 32> out;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), out.data(), nullptr, kAlgorithm, nullptr) == 1);
  return Digest(out);
}

uint64_t ContentHash(ByteView bytes, uint64_t key) {
#if defined(__x86_64__)
  static const bool kAvx2 = __builtin_cpu_supports("avx2");
  if (kAvx2) return ContentHashAvx2(bytes.data(), bytes.size(), key);
#endif
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), key);
}

}  // namespace crowdsurf
