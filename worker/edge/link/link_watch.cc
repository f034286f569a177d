// The thread that watches the trainer's words: asleep on a futex, awake when the trainer rings. A
// client that does not ring is looked at every 20 ms; the agent's beat is kept either way.
#include <algorithm>
#include <bit>

#include "worker/edge/link/link_server_impl.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kBeat = Milliseconds(500);  // the docs promise clients one at least so often
constexpr Duration kLook =
    Milliseconds(20);            // for clients without bells: delay of a snapshot, 0.1 % CPU
constexpr size_t kBlock = 4096;  // elements looked at before deciding: vectorizes

// All bits of the exponent are set: infinity or NaN (IEEE 754, binary32).
bool NotFinite(float v) { return (std::bit_cast<uint32_t>(v) & 0x7f800000u) == 0x7f800000u; }

// The index of the first value that is NaN or infinite, values.size() when there is none.
uint64_t FirstNotFinite(std::span<const float> values) {
  const float* const v = values.data();
  size_t at = 0;
  for (; at + kBlock <= values.size(); at += kBlock) {
    uint32_t any = 0;  // no early exit and a fixed length inside: vectorized at -O2
    for (size_t i = 0; i < kBlock; ++i) any |= NotFinite(v[at + i]) ? 1u : 0u;
    if (any != 0) break;
  }
  return static_cast<uint64_t>(
      std::find_if(values.begin() + static_cast<long>(at), values.end(), NotFinite) -
      values.begin());
}

}  // namespace

void LinkServer::Impl::Watch() {
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return map() != nullptr || stopping; });
  }
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stopping) return;
    }
    LinkControl& c = control();
    // Before the scan: a ring during it ends the wait at once.
    const uint32_t rung = c.trainer_bell.value.load(std::memory_order_acquire);
    c.agent_beat.value.fetch_add(1, std::memory_order_relaxed);
    Scan();
    WaitBell(c.trainer_bell.value, rung, ScanInterval());
  }
}

Duration LinkServer::Impl::ScanInterval() {
  const std::lock_guard lock(mutex);
  return session != 0 && !bells ? kLook : kBeat;
}

void LinkServer::Impl::Scan() {
  std::unique_lock lock(mutex);
  if (session == 0) return;
  LinkControl& c = control();
  ScanFilling(lock);
  if (session != 0 && c.published.ticket.load(std::memory_order_acquire) != seen.published)
    ScanPublished(lock);
  if (session != 0) ScanWords();
}

void LinkServer::Impl::ScanWords() {
  LinkControl& c = control();
  const bool cadence = c.mode.cadence_steps.load(std::memory_order_relaxed) != 0;
  const uint64_t applied = c.applied.value.load(std::memory_order_acquire);
  // `seen` is what was reported: a change is told once.
  if (applied != seen.applied) {
    seen.applied = applied;
    const bool asked = applied == asked_ticket.load(std::memory_order_acquire);
    if (asked) sink(link::Applied{asked_number.load(std::memory_order_relaxed)});
    if (!asked && cadence) sink(link::Applied{applied});
  }
  const uint64_t adopted = c.adopted.value.load(std::memory_order_acquire);
  if (adopted != seen.adopted) {
    seen.adopted = adopted;
    sink(link::Adopted{adopted});
  }
  const uint64_t steps = c.steps.value.load(std::memory_order_relaxed);
  const uint64_t samples = c.samples.value.load(std::memory_order_relaxed);
  const uint64_t at_steps = c.wake_at.steps.load(std::memory_order_acquire);
  const uint64_t at_samples = c.wake_at.samples.load(std::memory_order_relaxed);
  const bool new_mark = at_steps != seen.wake_steps || at_samples != seen.wake_samples;
  if (new_mark &&
      ((at_steps != 0 && steps >= at_steps) || (at_samples != 0 && samples >= at_samples))) {
    seen.wake_steps = at_steps;
    seen.wake_samples = at_samples;
    sink(link::StepsReached{steps, samples});
  }
  const uint64_t shares = c.gradient.shares.load(std::memory_order_acquire);
  if (shares != seen.shares) sink(link::ShareGathered{});
  seen.shares = shares;
  const bool waits = ReadLeases(c).waits;
  if (waits && !seen.waited) sink(link::LeasesWaited{});
  seen.waited = waits;
  if (!seen.stopped && c.stop_acknowledged.value.load(std::memory_order_acquire) != 0) {
    seen.stopped = true;
    sink(link::StopAcknowledged{});
  }
}

// What `published` says beside its ticket. Of a cadence the ticket is the number: nobody asked for
// it by another.
link::Published LinkServer::Impl::SnapshotOf(uint64_t ticket) const {
  const LinkControl& c = control();
  const bool asked = ticket == asked_ticket.load(std::memory_order_acquire);
  return {.number = asked ? asked_number.load(std::memory_order_relaxed) : ticket,
          .steps = c.published.steps.load(std::memory_order_relaxed),
          .samples = c.published.samples.load(std::memory_order_relaxed),
          .units_taken = c.index_taken.value.load(std::memory_order_acquire) ==
                         c.index_version.value.load(std::memory_order_relaxed),
          .leases = {c.published.stream.load(std::memory_order_relaxed),
                     c.published.position.load(std::memory_order_relaxed)},
          .gathered = c.published.gathered.load(std::memory_order_relaxed)};
}

std::optional<uint64_t> LinkServer::Impl::LookUpTo(uint64_t end,
                                                   std::unique_lock<std::mutex>& lock) {
  const std::span<const float> values = mapping->outbox().subspan(0, end);
  const uint64_t looked = filling.looked;
  const uint64_t looked_for = session;
  lock.unlock();  // a pass over the model: registration and progress must not wait for it
  const uint64_t bad = looked + FirstNotFinite(values.subspan(looked));
  lock.lock();
  // Another trainer has registered, and its words begin anew.
  if (session != looked_for) return std::nullopt;
  filling.looked = bad;
  return bad;
}

void LinkServer::Impl::Refuse(uint64_t number, uint64_t element) {
  metrics.published_bad.Add();
  log.Warning("snapshot refused: not a finite number",
              {{"averaging", number}, {"element", element}});
  sink(link::PublishRefused{number, element});
}

// A snapshot that nobody has asked for is looked at when it is whole.
void LinkServer::Impl::ScanFilling(std::unique_lock<std::mutex>& lock) {
  const LinkControl& c = control();
  const uint64_t ticket = c.filling.ticket.load(std::memory_order_acquire);
  if (ticket == seen.published || ticket != asked_ticket.load(std::memory_order_acquire)) return;
  if (ticket != filling.ticket) filling = {.ticket = ticket};
  const uint64_t size = mapping->outbox().size();
  while (!filling.refused) {
    const uint64_t there = std::min(c.filling.elements.load(std::memory_order_acquire), size);
    // The last values come with the ticket.
    if (there <= filling.looked || there == size) return;
    const auto bad = LookUpTo(there, lock);
    if (!bad || c.filling.ticket.load(std::memory_order_acquire) != ticket) return;
    filling.refused = *bad < there;
    if (filling.refused) return Refuse(SnapshotOf(ticket).number, *bad);
    sink(link::Filled{SnapshotOf(ticket), there});
  }
}

void LinkServer::Impl::ScanPublished(std::unique_lock<std::mutex>& lock) {
  LinkControl& c = control();
  const uint64_t ticket = c.published.ticket.load(std::memory_order_acquire);
  seen.published = ticket;
  if (ticket == 0) return;
  const uint64_t asked = asked_ticket.load(std::memory_order_acquire);
  const bool cadence = c.mode.cadence_steps.load(std::memory_order_relaxed) != 0;
  const auto release = [&] {
    RaiseTo(c.released.value, ticket);
    RingBell(c.agent_bell.value);
  };
  if (ticket != asked && !(cadence && ticket > asked)) {
    // Late: the host has moved on, and the trainer's next boundary answers the new ticket.
    (ticket < asked ? metrics.published_late : metrics.published_unasked).Add();
    return release();
  }
  if (ticket != filling.ticket) filling = {.ticket = ticket};
  if (filling.refused) return release();  // the host has heard of it
  const link::Published event = SnapshotOf(ticket);
  const uint64_t size = mapping->outbox().size();
  const auto bad = LookUpTo(size, lock);
  if (!bad) return;
  if (*bad == size) {
    metrics.published.Add();
    sink(event);
    return;
  }
  release();
  Refuse(event.number, *bad);
}

}  // namespace crowdsurf::worker
