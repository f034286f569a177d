#include "worker/core/view/witness.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {

// Paxos, phase 1: a promise is for higher ballots only.
bool TryPromise(WitnessRecord& record, Ballot ballot) {
  if (ballot <= record.promised) return false;
  record.promised = ballot;
  return true;
}

// Paxos, phase 2: accepted unless a higher ballot was promised.
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

// Forgotten with its epoch, its averaging, or by its id: a promise made anew could break an old
// one.
bool WitnessTable::Pruned(const RegisterId& id, const RegisterAge& age) const {
  if (age.epoch < min_epoch_) return true;
  if (id.kind != RegisterId::Kind::kRound) return false;
  const auto floor = floors_.find(age.epoch);
  return (floor != floors_.end() && age.averaging < floor->second) || forgotten_.contains(id);
}

WitnessTable::Entry* WitnessTable::Find(const RegisterId& id, const RegisterAge& age,
                                        WitnessAnswer::Kind& why_not) {
  if (const auto it = records_.find(id); it != records_.end()) return &it->second;
  why_not = WitnessAnswer::Kind::kForgotten;
  if (Pruned(id, age)) return nullptr;
  if (!MakeRoom(age, 0)) {
    ++full_;
    why_not = WitnessAnswer::Kind::kFull;
    return nullptr;
  }
  if (Pruned(id, age)) return nullptr;  // making room may have raised the floor above it
  Entry& entry = records_[id];
  entry.age = age;
  return &entry;
}

// Room for one more record, or for `bytes` more of values. Only rounds of older averagings than the
// one that asks make it, the oldest first: a flood in one averaging cannot silence another ballot
// of it. Successors are few (one a view) and go by epoch only.
bool WitnessTable::MakeRoom(const RegisterAge& asked, size_t bytes) {
  if (bytes > max_bytes_) return false;
  while ((bytes == 0 && records_.size() >= max_) || bytes_ + bytes > max_bytes_) {
    auto oldest = records_.end();
    for (auto it = records_.begin(); it != records_.end(); ++it) {
      const Entry& entry = it->second;
      if (it->first.kind != RegisterId::Kind::kRound || entry.lent) continue;
      if (std::pair(entry.age.epoch, entry.age.averaging) >=
          std::pair(asked.epoch, asked.averaging))
        continue;
      if (oldest == records_.end() || entry.age < oldest->second.age) oldest = it;
    }
    if (oldest == records_.end()) return false;
    ++pruned_;
    Remember(oldest->first, oldest->second.age);
    Drop(oldest);
  }
  return true;
}

// Of its id alone, so that others of its age stay open. When there are too many ids, the floor
// rises above the oldest averaging of them.
void WitnessTable::Remember(const RegisterId& id, const RegisterAge& age) {
  forgotten_.emplace(id, age);
  if (forgotten_.size() <= kMaxForgotten) return;
  const RegisterAge oldest =
      std::min_element(forgotten_.begin(), forgotten_.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->second;
  AveragingId& floor = floors_[oldest.epoch];
  floor = std::max(floor, oldest.averaging + 1);
  std::erase_if(forgotten_, [&](const auto& item) {
    return item.second.epoch == oldest.epoch && item.second.averaging <= oldest.averaging;
  });
}

void WitnessTable::Put(Entry& entry, WitnessRecord record) {
  bytes_ -= entry.record.value.size();
  entry.record = std::move(record);
  bytes_ += entry.record.value.size();
}

void WitnessTable::Drop(Records::iterator at) {
  bytes_ -= at->second.record.value.size();
  records_.erase(at);
}

WitnessAnswer WitnessTable::OnOpen(const RegisterId& id, const RegisterAge& age, Ballot ballot) {
  WitnessAnswer answer;
  Entry* entry = Find(id, age, answer.kind);
  if (entry == nullptr) return answer;
  if (entry->lent) {
    // An open Round has it, and answers itself.
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
  // Tried on a copy: a value without room leaves the register as it was.
  WitnessRecord record = entry->record;
  if (!TryAccept(record, ballot, value)) {
    answer.kind = WitnessAnswer::Kind::kRefused;
  } else if (value.size() > entry->record.value.size() &&
             !MakeRoom(entry->age, value.size() - entry->record.value.size())) {
    ++full_;
    answer.kind = WitnessAnswer::Kind::kFull;
    return answer;
  } else {
    Put(*entry, std::move(record));
    answer.kind = WitnessAnswer::Kind::kYes;
  }
  answer.record = entry->record;
  return answer;
}

std::optional<WitnessRecord> WitnessTable::Lend(const RegisterId& id, const RegisterAge& age) {
  if (!records_.contains(id)) {
    if (Pruned(id, age)) return std::nullopt;
    MakeRoom(age, 0);  // beyond the bound if need be: few rounds are open at a time
    if (Pruned(id, age)) return std::nullopt;
  }
  Entry& entry = records_[id];
  CHECK(!entry.lent);
  entry.age = age;
  entry.lent = true;
  return entry.record;
}

void WitnessTable::Retire(const RegisterId& id, WitnessRecord record) {
  const auto it = records_.find(id);
  if (it == records_.end()) return;  // its epoch passed while it was open: forgotten
  CHECK(it->second.lent);
  it->second.lent = false;
  Put(it->second, std::move(record));
}

void WitnessTable::OnEpoch(uint64_t epoch) {
  if (epoch < 2 || epoch - 2 < min_epoch_) return;
  min_epoch_ = epoch - 1;  // views two epochs old are forgotten, the parent's is kept
  const auto old = [this](const RegisterAge& age) { return age.epoch < min_epoch_; };
  for (auto at = records_.begin(); at != records_.end();) {
    const auto next = std::next(at);
    if (!at->second.lent && old(at->second.age)) Drop(at);
    at = next;
  }
  std::erase_if(forgotten_, [&](const auto& item) { return old(item.second); });
  floors_.erase(floors_.begin(), floors_.lower_bound(min_epoch_));
}

}  // namespace crowdsurf::worker
