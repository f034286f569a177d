// Record: a signed value with an absolute expiry, one of possibly many subkeys of a key.
//
// A key holds one record for each subkey, and the subkey is the PeerId of the owner, so nobody can
// overwrite another's record and a key works as a small dictionary of who says what (roster,
// matchmaking). Of two records of one subkey the newer is the one with the higher (sequence,
// expiry); everything else about a record is fixed by its signature. The expiry is wall time, set
// by the owner and never moved by a holder. Records are immutable and shared (RecordPtr), because
// in a simulation thousands of nodes of one process hold the same ones. Differences from hivemind:
// the subkey is bound to the key that signed, and sequence comes
// before expiry, so that an owner can shorten the life of its own record. Any thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/time.h"
#include "coordinator-free-dht/core/key.h"

namespace crowdsurf::dht {

using PublicKey = std::array<uint8_t, 32>;  // raw Ed25519
using Signature = std::array<uint8_t, 64>;  // Ed25519

struct Record {
  Key key;
  PeerId subkey;          // of the owner: PeerIdOf(public_key, boot)
  uint64_t boot = 0;      // boot counter of the owner, so that subkey can be checked
  uint64_t sequence = 0;  // grows with every change by the owner
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
