#include "worker/core/witness.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {

bool TryPromise(WitnessRecord& record, Ballot ballot) {
  if (ballot <= record.promised) return false;
  record.promised = ballot;
  return true;
}

bool TryAccept(WitnessRecord& record, Ballot ballot, const Bytes& value) {
  if (ballot < record.promised) return false;
  record.promised = ballot;
  record.accepted = ballot;
  record.value = value;
  return true;
}

RegisterId RegisterId::Round(const InstanceId& instance) {
  RegisterId id;
  id.kind = Kind::kRound;
  std::copy(instance.bytes().begin(), instance.bytes().end(), id.name.begin());
  return id;
}

RegisterId RegisterId::SuccessorOf(const ViewHash& view) {
  RegisterId id;
  id.kind = Kind::kSuccessor;
  id.name = view.bytes();
  return id;
}

bool WitnessTable::Pruned(const RegisterId& id, const RegisterAge& age) const {
  if (age.epoch < least_epoch_) return true;
  return id.kind == RegisterId::Kind::kRound && pruned_ > 0 && age <= floor_;
}

WitnessTable::Entry* WitnessTable::Find(const RegisterId& id, const RegisterAge& age,
                                        WitnessAnswer::Kind& why_not) {
  if (const auto it = records_.find(id); it != records_.end()) {
    it->second.used = ++uses_;
    return &it->second;
  }
  why_not = WitnessAnswer::Kind::kForgotten;
  if (Pruned(id, age)) return nullptr;
  if (records_.size() >= most_ && !MakeRoom()) {
    ++full_;
    why_not = WitnessAnswer::Kind::kFull;
    return nullptr;
  }
  if (Pruned(id, age)) return nullptr;  // making room may have raised the floor above it
  Entry& entry = records_[id];
  entry.age = age;
  entry.used = ++uses_;
  return &entry;
}

// Drops the decided round that was used least recently. The floor rises to its age, so that nobody
// who asks for it later gets a fresh promise. Successors are few (one a view) and go by epoch only.
bool WitnessTable::MakeRoom() {
  auto oldest = records_.end();
  for (auto it = records_.begin(); it != records_.end(); ++it) {
    const Entry& entry = it->second;
    if (it->first.kind != RegisterId::Kind::kRound || !entry.decided || entry.lent) continue;
    if (oldest == records_.end() || entry.used < oldest->second.used) oldest = it;
  }
  if (oldest == records_.end()) return false;
  floor_ = std::max(floor_, oldest->second.age);
  ++pruned_;
  records_.erase(oldest);
  return true;
}

WitnessAnswer WitnessTable::OnOpen(const RegisterId& id, const RegisterAge& age, Ballot ballot) {
  WitnessAnswer answer;
  Entry* entry = Find(id, age, answer.kind);
  if (entry == nullptr) return answer;
  if (entry->lent) {
    answer.kind = WitnessAnswer::Kind::kLent;
    return answer;
  }
  answer.kind =
      TryPromise(entry->record, ballot) ? WitnessAnswer::Kind::kYes : WitnessAnswer::Kind::kRefused;
  answer.record = entry->record;
  return answer;
}

WitnessAnswer WitnessTable::OnAccept(const RegisterId& id, const RegisterAge& age, Ballot ballot,
                                     const Bytes& value) {
  WitnessAnswer answer;
  Entry* entry = Find(id, age, answer.kind);
  if (entry == nullptr) return answer;
  if (entry->lent) {
    answer.kind = WitnessAnswer::Kind::kLent;
    return answer;
  }
  answer.kind = TryAccept(entry->record, ballot, value) ? WitnessAnswer::Kind::kYes
                                                        : WitnessAnswer::Kind::kRefused;
  answer.record = entry->record;
  return answer;
}

void WitnessTable::MarkDecided(const RegisterId& id) {
  if (const auto it = records_.find(id); it != records_.end()) it->second.decided = true;
}

std::optional<WitnessRecord> WitnessTable::Lend(const RegisterId& id, const RegisterAge& age) {
  if (records_.count(id) == 0 && Pruned(id, age)) return std::nullopt;
  Entry& entry = records_[id];  // beyond the bound if need be: few rounds are open at a time
  CHECK(!entry.lent);
  entry.age = age;
  entry.used = ++uses_;
  entry.lent = true;
  return entry.record;
}

void WitnessTable::Retire(const RegisterId& id, WitnessRecord record, bool decided) {
  const auto it = records_.find(id);
  if (it == records_.end()) return;  // its epoch passed while it was open: forgotten
  CHECK(it->second.lent);
  it->second.lent = false;
  it->second.record = std::move(record);
  it->second.decided = it->second.decided || decided;
}

void WitnessTable::OnEpoch(uint64_t epoch) {
  if (epoch < 2 || epoch - 2 < least_epoch_) return;
  least_epoch_ = epoch - 1;  // views two epochs old are forgotten, the parent's is kept
  std::erase_if(records_, [this](const auto& item) {
    return item.second.age.epoch < least_epoch_ && !item.second.lent;
  });
}

}  // namespace crowdsurf::worker
