#include "coordinator-free-dht/core/wire/record.h"

#include "base/digest.h"

namespace crowdsurf::dht {

PeerId PeerIdOf(const PublicKey& public_key, uint64_t boot) {
  ByteWriter writer;
  writer.Raw(public_key);
  // A process that starts again is a new peer: nobody takes its old connections or records for new
  // ones.
  writer.U64(boot);
  return PeerId(Sha256(writer.bytes()).bytes());
}

void WriteHead(ByteWriter& out, const Record& record) {
  out.Raw(record.key.view());
  out.Raw(record.subkey.view());
  out.U64(record.boot);
  out.U64(record.sequence);
  out.I64(record.written.nanoseconds());
  out.I64(record.expiry.nanoseconds());
}

Bytes SignedBytes(const Record& record) {
  ByteWriter writer;
  // The domain string keeps a signature from being valid for anything else that the key signs.
  writer.String("crowdsurf dht record 2");
  WriteHead(writer, record);
  writer.Raw(record.public_key);
  // The value is last and carries its length: no two records give the same bytes.
  writer.Blob(record.value);
  return writer.Take();
}

}  // namespace crowdsurf::dht
