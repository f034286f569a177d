// LatestBoots: of each public key the highest boot that was proved, and so the one id that counts.
//
// A boot number is its owner's own word: one key gives as many ids as its owner likes. Of a key the
// id with the highest boot is the peer. A lower boot is an earlier life of that process, and is
// over. Owned by whoever proves keys; single sequence; OnProof is O(log keys). Bound: kMaxKeys.
// Above it the key that was proved longest ago is forgotten. Source: docs/security.md, Members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/id.h"
#include "coordinator-free-dht/core/wire/record.h"

namespace crowdsurf::dht {

class LatestBoots {
 public:
  // Six times the peers of the largest job; 16 MiB.
  static constexpr size_t kMaxKeys = 65'536;

  enum class Verdict : uint8_t {
    kLatest,    // no higher boot of that key is known
    kReplaces,  // it is higher than the one before, whose id is dead
    kOld,       // a higher one is known: it is not the peer any more
  };
  struct Answer {
    Verdict verdict = Verdict::kLatest;
    PeerId replaced;      // kReplaces: the id that is dead
    bool forgot = false;  // another key made room
  };

  // `key` has just proved itself, by a handshake, and says that its boot is `boot`.
  Answer OnProof(const PublicKey& key, uint64_t boot);
  // A higher boot of that key was proved.
  bool IsOld(const PublicKey& key, uint64_t boot) const;
  size_t size() const { return keys_.size(); }

 private:
  struct Known {
    uint64_t boot = 0;
    uint64_t proved = 0;  // number of the last proof
  };
  std::map<PublicKey, Known> keys_;
  std::map<uint64_t, PublicKey> by_proof_;  // of all keys, the oldest proof first
  uint64_t proofs_ = 0;
};

}  // namespace crowdsurf::dht
