// Store: the records a node holds for others, bounded and expiring.
//
// Per key a small dictionary subkey -> record. Later sequence wins, then later expiry; expiries are
// absolute wall time and checked on every read, so a sweep that comes late shows nothing stale.
// Quotas per record, key, owner, sender and in all. A refused record changes nothing at all (in
// hivemind a refused store re-pointed the eviction heap); there is no
// eviction index here, only expiry inside the record itself. Under one key a public key has records
// of its highest boot alone. Signatures are the caller's: Admit, verify, then Put. Owned by Node;
// single sequence.
#pragma once

#include <map>
#include <vector>

#include "base/time.h"
#include "coordinator-free-dht/core/port/config.h"
#include "coordinator-free-dht/core/wire/record.h"

namespace crowdsurf::dht {

enum class StoreResult : uint8_t {
  kStored,      // new, or newer than what was there
  kHad,         // the very record was there
  kStale,       // a newer one is there
  kOldBoot,     // one of a higher boot of its key is there
  kExpired,     // its expiry is past
  kTooFar,      // its expiry is beyond NodeConfig::longest_life
  kTooLarge,    // value_bytes
  kKeyFull,     // key_records or key_bytes
  kOwnerFull,   // owner_records
  kSourceFull,  // source_records
  kFull,        // total_bytes
};
const char* Name(StoreResult result);  // lower case, for a label

class Store {
 public:
  explicit Store(const NodeConfig& config) : config_(config) {}  // `config` outlives the store

  // What Put would say; drops expired records of the key to make room, changes nothing else.
  StoreResult Admit(WallTime wall, const Record& record, const PeerId& source);
  // Stores if Admit says kStored. `source` is the authenticated sender, charged for the record.
  StoreResult Put(Time now, WallTime wall, RecordPtr record, const PeerId& source);

  // Unexpired records of `key`, by subkey.
  std::vector<RecordPtr> Find(WallTime wall, const Key& key) const;
  // Drops what is expired everywhere.
  void Sweep(WallTime wall);

  // Keys with a record that nobody stored or renewed since `before`: to be passed on by a holder.
  std::vector<Key> NotRenewedSince(Time before) const;
  // Counts the records of `key` as renewed now.
  void MarkRenewed(Time now, const Key& key);
  std::vector<Key> Keys() const;  // ascending

  size_t records() const { return records_; }
  size_t bytes() const { return bytes_; }
  bool empty() const { return records_ == 0; }
  size_t MemoryBytes() const;

 private:
  struct Held {
    RecordPtr record;
    PeerId source;
    Time renewed;
  };
  struct Entry {
    std::map<PeerId, Held> by_subkey;
    size_t bytes = 0;
  };
  using EntryIterator = std::map<Key, Entry>::iterator;
  static Held* OtherBoot(Entry& entry, const Record& record);
  void Account(Entry& entry, const Held& held, int sign);
  void SweepEntry(WallTime wall, Entry& entry);
  static void Charge(std::map<PeerId, size_t>& accounts, const PeerId& who, int sign);
  static size_t ChargeOf(const std::map<PeerId, size_t>& accounts, const PeerId& who);

  const NodeConfig& config_;
  std::map<Key, Entry> entries_;
  std::map<PeerId, size_t> owners_;   // records by owner
  std::map<PeerId, size_t> sources_;  // records by sender
  size_t records_ = 0;
  size_t bytes_ = 0;
};

}  // namespace crowdsurf::dht
