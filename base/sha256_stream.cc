#include "base/sha256_stream.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace crowdsurf {

void Sha256Stream::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256Stream::Sha256Stream() : context_(EVP_MD_CTX_new()) {
  CHECK(context_ != nullptr);
  CHECK_EQ(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr), 1);
}

void Sha256Stream::Add(ByteView bytes) {
  CHECK_EQ(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), 1);
}

Digest Sha256Stream::Take() {
  std::array<uint8_t, 32> out;
  CHECK_EQ(EVP_DigestFinal_ex(context_.get(), out.data(), nullptr), 1);
  return Digest(out);
}

}  // namespace crowdsurf
