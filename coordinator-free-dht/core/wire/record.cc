#include "coordinator-free-dht/core/wire/record.h"

#include "base/digest.h"

namespace crowdsurf::dht {

PeerId PeerIdOf(const PublicKey& public_key, uint64_t boot) {
  ByteWriter writer;
  writer.Raw(public_key);
  writer.U64(boot);
  return PeerId(Sha256(writer.bytes()).bytes());
}

void WriteHead(ByteWriter& out, const Record& record) {
  out.Raw(record.key.view());
  out.Raw(record.subkey.view());
  out.U64(record.boot);
  out.U64(record.sequence);
  out.I64(record.expiry.nanoseconds());
}

Bytes SignedBytes(const Record& record) {
  ByteWriter writer;
  writer.String("crowdsurf dht record 1");
  WriteHead(writer, record);
  writer.Raw(record.public_key);
  writer.Blob(record.value);
  return writer.Take();
}

}  // namespace crowdsurf::dht
