#include "coordinator-free-dht/core/store/store.h"

#include <utility>

namespace crowdsurf::dht {

const char* Name(StoreResult result) {
  switch (result) {
    case StoreResult::kStored:
      return "stored";
    case StoreResult::kHad:
      return "had";
    case StoreResult::kStale:
      return "stale";
    case StoreResult::kOldBoot:
      return "old_boot";
    case StoreResult::kExpired:
      return "expired";
    case StoreResult::kTooFar:
      return "too_far";
    case StoreResult::kTooLarge:
      return "too_large";
    case StoreResult::kKeyFull:
      return "key_full";
    case StoreResult::kOwnerFull:
      return "owner_full";
    case StoreResult::kSourceFull:
      return "source_full";
    case StoreResult::kFull:
      return "full";
  }
  return "unknown";
}

void Store::Charge(std::map<PeerId, size_t>& accounts, const PeerId& who, int sign) {
  const auto it = accounts.try_emplace(who, 0).first;
  if (sign > 0) {
    ++it->second;
  } else if (--it->second == 0) {
    // Accounts of zero would pile up, one for each peer that was ever here.
    accounts.erase(it);
  }
}

size_t Store::ChargeOf(const std::map<PeerId, size_t>& accounts, const PeerId& who) {
  const auto it = accounts.find(who);
  return it == accounts.end() ? 0 : it->second;
}

void Store::Account(Entry& entry, const Held& held, int sign) {
  Charge(owners_, held.record->subkey, sign);
  Charge(sources_, held.source, sign);
  const size_t size = held.record->value.size();
  if (sign > 0) {
    entry.bytes += size;
    bytes_ += size;
    ++records_;
  } else {
    entry.bytes -= size;
    bytes_ -= size;
    --records_;
  }
}

void Store::SweepEntry(WallTime wall, Entry& entry) {
  std::erase_if(entry.by_subkey, [&](const auto& item) {
    if (item.second.record->expiry > wall) return false;
    Account(entry, item.second, -1);
    return true;
  });
}

// Of the same public key. There is at most one, for each replaces the one before.
Store::Held* Store::OtherBoot(Entry& entry, const Record& record) {
  for (auto& [subkey, held] : entry.by_subkey) {
    const Record& other = *held.record;
    if (other.public_key == record.public_key && other.boot != record.boot) return &held;
  }
  return nullptr;
}

StoreResult Store::Admit(WallTime wall, const Record& record, const PeerId& source) {
  if (record.value.size() > config_.value_bytes) return StoreResult::kTooLarge;
  if (record.expiry <= wall) return StoreResult::kExpired;
  if (record.expiry - wall > config_.longest_life) return StoreResult::kTooFar;

  size_t replaced_bytes = 0;
  const Held* replaced = nullptr;
  const auto entry = entries_.find(record.key);
  if (entry != entries_.end()) {
    // Expired records must not keep a key full until the next sweep comes.
    SweepEntry(wall, entry->second);
    const auto held = entry->second.by_subkey.find(record.subkey);
    if (held != entry->second.by_subkey.end()) {
      replaced = &held->second;
      if (*replaced->record == record) return StoreResult::kHad;
      // A copy that comes late, or is replayed, must not bring an old value back.
      if (!Newer(record, *replaced->record)) return StoreResult::kStale;
      replaced_bytes = replaced->record->value.size();
    }
    const Held* other = replaced != nullptr ? nullptr : OtherBoot(entry->second, record);
    if (other != nullptr && other->record->boot > record.boot) return StoreResult::kOldBoot;
    if (other != nullptr) {
      replaced = other;
      replaced_bytes = other->record->value.size();
    }
    // The replaced record makes room, so renewing one in a full key always works.
    const size_t key_bytes = entry->second.bytes - replaced_bytes + record.value.size();
    if (key_bytes > config_.key_bytes) return StoreResult::kKeyFull;
    if (replaced == nullptr && entry->second.by_subkey.size() >= config_.key_records) {
      return StoreResult::kKeyFull;
    }
  }
  if (bytes_ - replaced_bytes + record.value.size() > config_.total_bytes)
    return StoreResult::kFull;
  // One owner cannot fill a holder, under however many keys it publishes.
  if (replaced == nullptr && ChargeOf(owners_, record.subkey) >= config_.owner_records) {
    return StoreResult::kOwnerFull;
  }
  // A sender can make up owners and so pass their quota; its own id is authenticated.
  const bool already_charged = replaced != nullptr && replaced->source == source;
  if (!already_charged && ChargeOf(sources_, source) >= config_.source_records) {
    return StoreResult::kSourceFull;
  }
  return StoreResult::kStored;
}

StoreResult Store::Put(Time now, WallTime wall, RecordPtr record, const PeerId& source) {
  const StoreResult result = Admit(wall, *record, source);
  if (result == StoreResult::kHad) {
    // Its owner or another holder lives and cares: no need to republish it.
    entries_.at(record->key).by_subkey.at(record->subkey).renewed = now;
  }
  if (result != StoreResult::kStored) return result;
  Entry& entry = entries_[record->key];
  const PeerId subkey = record->subkey;
  const auto held = entry.by_subkey.find(subkey);
  if (held != entry.by_subkey.end()) {
    // The sender of the newer record is charged for it, and the one before no more.
    Account(entry, held->second, -1);
    held->second = Held{std::move(record), source, now};
    Account(entry, held->second, +1);
  } else {
    if (const Held* other = OtherBoot(entry, *record)) {
      Account(entry, *other, -1);
      entry.by_subkey.erase(PeerId(other->record->subkey));
    }
    const auto added = entry.by_subkey.emplace(subkey, Held{std::move(record), source, now}).first;
    Account(entry, added->second, +1);
  }
  return result;
}

std::vector<RecordPtr> Store::Find(WallTime wall, const Key& key) const {
  std::vector<RecordPtr> out;
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return out;
  for (const auto& [subkey, held] : entry->second.by_subkey) {
    if (held.record->expiry > wall) out.push_back(held.record);
  }
  return out;
}

void Store::Sweep(WallTime wall) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    SweepEntry(wall, it->second);
    it = it->second.by_subkey.empty() ? entries_.erase(it) : std::next(it);
  }
}

std::vector<Key> Store::NotRenewedSince(Time before) const {
  std::vector<Key> out;
  for (const auto& [key, entry] : entries_) {
    for (const auto& [subkey, held] : entry.by_subkey) {
      if (held.renewed >= before) continue;
      out.push_back(key);
      break;
    }
  }
  return out;
}

void Store::MarkRenewed(Time now, const Key& key) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  for (auto& [subkey, held] : entry->second.by_subkey) held.renewed = now;
}

std::vector<Key> Store::Keys() const {
  std::vector<Key> out;
  out.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) out.push_back(key);
  return out;
}

size_t Store::MemoryBytes() const {
  // Map nodes of about 48 bytes each besides their contents; the records themselves are counted
  // although a simulator's nodes share them.
  return sizeof *this + entries_.size() * (sizeof(Key) + sizeof(Entry) + 48) +
         records_ * (sizeof(PeerId) + sizeof(Held) + 48 + sizeof(Record) + 32) + bytes_ +
         (owners_.size() + sources_.size()) * (sizeof(PeerId) + sizeof(size_t) + 48);
}

}  // namespace crowdsurf::dht
