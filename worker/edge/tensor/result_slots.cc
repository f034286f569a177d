#include "worker/edge/tensor/result_slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace crowdsurf::worker {

void ResultSlots::Open(const InstanceId& instance, const std::vector<std::span<uint8_t>>& slots) {
  auto made = std::make_shared<Slots>(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) (*made)[i].memory = slots[i];
  const std::lock_guard lock(mutex_);
  CHECK(open_.emplace(instance, std::move(made)).second);
}

void ResultSlots::Close(const InstanceId& instance) {
  const std::lock_guard lock(mutex_);
  const auto it = open_.find(instance);
  if (it == open_.end()) return;
  for (Slot& slot : *it->second) MoveOut(slot);
  open_.erase(it);
}

// Without the lock where nothing is landing, which is nearly always.
void ResultSlots::Take(const InstanceId& instance, uint32_t chunk) {
  Slot* const slot = Find(instance, chunk);
  if (slot == nullptr) return;
  State free = State::kFree;
  if (slot->state.compare_exchange_strong(free, State::kTaken) || free == State::kTaken) return;
  const std::lock_guard lock(mutex_);
  MoveOut(*slot);
  slot->state = State::kTaken;
}

void ResultSlots::Free(const InstanceId& instance, uint32_t chunk) {
  Slot* const slot = Find(instance, chunk);
  State taken = State::kTaken;  // else something is landing already
  if (slot != nullptr) slot->state.compare_exchange_strong(taken, State::kFree);
}

bool ResultSlots::Keep(Landing& landing) { return Leave(landing, State::kTaken); }
void ResultSlots::Drop(Landing& landing) { Leave(landing, State::kFree); }

// What has landed is the host's alone, without the lock.
bool ResultSlots::Leave(Landing& landing, State to) {
  if (!std::exchange(landing.landed_, false)) return false;
  Slot& slot = *landing.slot_;
  CHECK(slot.state == State::kLanded && slot.landing.get() == &landing);
  slot.landing = nullptr;
  slot.state = to;
  return true;
}

std::shared_ptr<ResultSlots::Landing> ResultSlots::Begin(const InstanceId& instance, uint32_t chunk,
                                                         size_t bytes) {
  const std::lock_guard lock(mutex_);
  Slot* const slot = Find(instance, chunk);
  if (slot == nullptr || slot->memory.size() != bytes || bytes == 0) return nullptr;
  State free = State::kFree;
  if (!slot->state.compare_exchange_strong(free, State::kLanding)) return nullptr;
  slot->landing = std::make_shared<Landing>(*slot, slot->memory);
  return slot->landing;
}

void ResultSlots::Landing::Land() {
  CHECK(whole());
  if (!in_slot_) return;
  landed_ = true;
  slot_->state = State::kLanded;
}

void ResultSlots::Abandon(Landing& landing) {
  const std::lock_guard lock(mutex_);
  const auto uses = landing.Using();
  if (!std::exchange(landing.in_slot_, false)) return;
  landing.slot_->landing = nullptr;
  landing.slot_->state = State::kFree;
}

// The host's thread alone changes open_, so there it is read without the lock.
ResultSlots::Slot* ResultSlots::Find(const InstanceId& instance, uint32_t chunk) {
  const auto it = open_.find(instance);
  if (it == open_.end() || chunk >= it->second->size()) return nullptr;
  return &(*it->second)[chunk];
}

// Pre: the lock is held.
void ResultSlots::MoveOut(Slot& slot) {
  const std::shared_ptr<Landing> landing = std::exchange(slot.landing, nullptr);
  if (landing == nullptr) return;
  const auto uses = landing->Using();
  landing->own_ = pool_->Take(slot.memory.size());
  std::copy_n(slot.memory.begin(), landing->got_, landing->own_.begin());
  landing->in_slot_ = landing->landed_ = false;
}

}  // namespace crowdsurf::worker
