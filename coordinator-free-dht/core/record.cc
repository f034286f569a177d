#include "coordinator-free-dht/core/record.h"

#include "base/digest.h"

namespace crowdsurf::dht {

PeerId PeerIdOf(const PublicKey& public_key, uint64_t boot) {
  ByteWriter writer;
  writer.Raw(public_key);
  writer.U64(boot);
  return PeerId(Sha256(writer.bytes()).bytes());
}

Bytes SignedBytes(const Record& record) {
  ByteWriter writer;
  writer.String("crowdsurf dht record 1");
  writer.Raw(record.key.view());
  writer.Raw(record.subkey.view());
  writer.U64(record.boot);
  writer.U64(record.sequence);
  writer.I64(record.expiry.nanoseconds());
  writer.Raw(record.public_key);
  writer.Blob(record.value);
  return writer.Take();
}

}  // namespace crowdsurf::dht
