// Record: a signed value with the time of its writing and its end, one of possibly many subkeys of
// a key.
//
// A key holds one record for each subkey. The subkey is the PeerId of the owner, so nobody can
// overwrite another's record. A key works as a small dictionary from owners to values. Of two
// records of one subkey the newer is the one with the higher (sequence, expiry). The signature
// fixes everything else. Both times are the job's (clock/peer_clocks.h), as the owner knows it. No
// holder moves them.
// Records are immutable and shared (RecordPtr): thousands of simulated nodes hold the same ones.
//
// Differences from hivemind: the subkey is bound to the key that signed. Sequence comes before
// expiry, so an owner can shorten the life of its own record. Any thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/time.h"
#include "coordinator-free-dht/core/wire/key.h"

namespace crowdsurf::dht {

using PublicKey = std::array<uint8_t, 32>;  // raw Ed25519
using Signature = std::array<uint8_t, 64>;  // Ed25519

struct Record {
  Key key;
  PeerId subkey;          // of the owner: PeerIdOf(public_key, boot)
  uint64_t boot = 0;      // boot counter of the owner, so that subkey can be checked
  uint64_t sequence = 0;  // grows with every change by the owner
  WallTime written;       // not before 1970, and not after `expiry`
  WallTime expiry;
  Bytes value;
  PublicKey public_key{};
  Signature signature{};  // over SignedBytes(record)

  bool operator==(const Record&) const = default;
};

using RecordPtr = std::shared_ptr<const Record>;

// docs/agent.md: an agent that restarts has a higher boot counter, and so is a new peer.
// Sha256(public key || boot as little-endian u64).
PeerId PeerIdOf(const PublicKey& public_key, uint64_t boot);

// Does `a` replace `b` as the record of one key and subkey?
inline bool Newer(const Record& a, const Record& b) {
  return a.sequence != b.sequence ? a.sequence > b.sequence : a.expiry > b.expiry;
}

// The rest of its life at the job's time `wall`: never more than the owner gave it, also where the
// owner's clock is ahead. Zero or less: it has ended.
inline Duration LifeLeft(const Record& record, WallTime wall) {
  const Duration whole = record.expiry - record.written;
  return record.written > wall ? whole : record.expiry - wall;
}

// Writes the fields before the value, in the order of the wire and of the signature.
void WriteHead(ByteWriter& out, const Record& record);
// What the signature covers: every field but itself, in fixed order behind a domain string.
Bytes SignedBytes(const Record& record);

// Signs a node's own records and verifies everybody's: Ed25519 at the edge, a cheap hash in the
// simulator. Must be pure (same input, same answer). Outlives the nodes that use it.
class RecordAuthority {
 public:
  virtual ~RecordAuthority() = default;
  virtual Signature Sign(ByteView bytes) const = 0;
  virtual bool Verify(const PublicKey& key, ByteView bytes, const Signature& signature) const = 0;
};

}  // namespace crowdsurf::dht
