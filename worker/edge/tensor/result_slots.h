// Result slots: where in memory the results of open rounds lie, so that their bytes are received
// there and copied by nobody.
//
// A slot is free (what lies there is void), or a result is landing in it, or it has one. An I/O
// thread begins a landing when the header of a result has come and the slot is free, and ends it
// when the payload has its hash. The host takes a slot before it writes there itself, or when it
// has looked at what landed. A result that is still landing then, or that nobody has looked at yet,
// goes on in a buffer of its own: no peer that is slow keeps the host from its slot. Which result
// belongs there is the round's to say; until the slot is taken nobody reads it. Threads: the host's
// and the I/O threads', as said at each function; a landing is one I/O thread's. Bound: the slots
// of open rounds.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/byte_pool.h"
#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/view/register.h"

namespace crowdsurf::worker {

class ResultSlots {
 public:
  class Landing;

  // Buffers for what has to leave its slot come from `pool`.
  explicit ResultSlots(std::shared_ptr<BytePool> pool) : pool_(std::move(pool)) {}

  // ---- host thread ----
  // All of them are free. Pre: the instance is not open; they stay in place until Close.
  void Open(const InstanceId& instance, const std::vector<std::span<uint8_t>>& slots);
  // Afterwards nobody writes to them. What has landed and nobody has taken is void.
  void Close(const InstanceId& instance);
  // The host writes there now, or has a result there: nothing lands in it. O(1), and a copy where
  // a result has begun to land.
  void Take(const InstanceId& instance, uint32_t chunk);
  // What the host had there is void: the next result may land.
  void Free(const InstanceId& instance, uint32_t chunk);
  // Of what has landed, if it is in its slot still: takes the slot with it, or frees it.
  bool Keep(Landing& landing);
  void Drop(Landing& landing);

  // ---- I/O threads ----
  // nullptr: no such slot, of other size, or not free.
  std::shared_ptr<Landing> Begin(const InstanceId& instance, uint32_t chunk, size_t bytes);
  void Abandon(Landing& landing);  // it will never be whole

 private:
  enum class State : uint8_t { kFree, kLanding, kLanded, kTaken };
  struct Slot {
    std::span<uint8_t> memory;
    std::atomic<State> state = State::kFree;
    std::shared_ptr<Landing> landing = nullptr;  // kLanding, kLanded
  };
  using Slots = std::vector<Slot>;
  Slot* Find(const InstanceId& instance, uint32_t chunk);
  bool Leave(Landing& landing, State to);
  void MoveOut(Slot& slot);

  const std::shared_ptr<BytePool> pool_;
  std::mutex mutex_;  // before a landing's
  std::map<InstanceId, std::shared_ptr<Slots>> open_;
};

// A result on its way into a slot, or into a buffer of its own once it has lost that. Guarded by
// Using until it has landed; the host's afterwards.
class ResultSlots::Landing {
 public:
  Landing(Slot& slot, std::span<uint8_t> memory) : slot_(&slot), memory_(memory) {}
  // Held while its bytes are written or read. The host waits for it where it wants the slot: for
  // one read from a socket at most.
  std::unique_lock<std::mutex> Using() { return std::unique_lock(mutex_); }
  std::span<uint8_t> rest() { return memory().subspan(got_); }  // where the next bytes go
  void Got(size_t bytes) { got_ += bytes; }
  bool whole() const { return got_ == memory_.size(); }
  ByteView bytes() const { return in_slot_ ? ByteView(memory_) : ByteView(own_); }
  // The payload is whole and has its hash. Pre: Using is held.
  void Land();

 private:
  friend class ResultSlots;
  std::span<uint8_t> memory() { return in_slot_ ? memory_ : std::span<uint8_t>(own_); }

  std::mutex mutex_;
  Slot* const slot_;  // there while in_slot_
  const std::span<uint8_t> memory_;
  size_t got_ = 0;
  bool in_slot_ = true;  // else in own_
  bool landed_ = false;  // and neither kept, dropped nor moved out
  Bytes own_;
};

}  // namespace crowdsurf::worker
