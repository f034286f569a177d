// UnsafeHashAuthority: signs with a plain hash, for simulators and tests.
//
// Anybody can forge it; it costs a tenth of a microsecond where Ed25519 costs a hundred. It still
// catches garbled records and wrong owners. Production uses edge/identity. Stateless; any thread.
#pragma once

#include "base/digest.h"
#include "coordinator-free-dht/core/wire/record.h"

namespace crowdsurf::dht {

class UnsafeHashAuthority : public RecordAuthority {
 public:
  explicit UnsafeHashAuthority(const PublicKey& own) : own_(own) {}

  Signature Sign(ByteView bytes) const override { return Hash(own_, bytes); }
  bool Verify(const PublicKey& key, ByteView bytes, const Signature& signature) const override {
    return Hash(key, bytes) == signature;
  }

 private:
  static Signature Hash(const PublicKey& key, ByteView bytes) {
    Signature out{};
    ByteWriter writer;
    writer.Raw(key);
    writer.U64(ContentHash(bytes, 1));
    const uint64_t hash = ContentHash(writer.bytes(), 2);
    std::memcpy(out.data(), &hash, sizeof hash);
    return out;
  }
  PublicKey own_;
};

}  // namespace crowdsurf::dht
