// Sha256Stream: the SHA-256 of bytes that come one piece after the other (digest.h has it of all).
//
// One owner at a time. Memory does not grow with the bytes.
#pragma once

#include <memory>

#include "base/bytes.h"
#include "base/id.h"

struct evp_md_ctx_st;

namespace crowdsurf {

class Sha256Stream {
 public:
  Sha256Stream();
  void Add(ByteView bytes);
  Digest Take();  // of all that was added; the last call

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace crowdsurf
