// Digests as pure functions: SHA-256 for identities and agreement, XXH3 for chunk contents.
//
// SHA-256 comes from OpenSSL and the 64-bit hash from xxHash; both are hidden in the .cc, so cores
// that hash do not see a crypto library. ContentHash detects corruption and mismatches, not
// forgery. Mutual TLS keeps forgers out, where tensors are encrypted. Any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/id.h"

namespace crowdsurf {

Digest Sha256(ByteView bytes);                       // 0.40 GB/s on a core without SHA-NI
uint64_t ContentHash(ByteView bytes, uint64_t key);  // XXH3-64 with `key` as seed

}  // namespace crowdsurf
