// What passes through the shared file: snapshots out, results and adopted state in (link_client.h).
#include <algorithm>

#include "base/digest.h"
#include "base/edge/clock.h"
#include "worker/edge/link/link_client_impl.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kMaxOpaque = 1ULL << 32;  // bytes of an answer with trainer state
// Values between two words on how far a snapshot is: 4 MiB, some 32 chunks. The agent is woken for
// each.
constexpr size_t kFilledAtOnce = size_t{1} << 20;

// Adds what the averaging changed: inbox - outbox, or the inbox itself where it holds a change. The
// inner loops have a fixed length so that they are vectorized at -O2.
void AddChange(std::span<float> params, std::span<const float> inbox, std::span<const float> outbox,
               bool inbox_is_change) {
  constexpr size_t kLane = 16;
  float* __restrict const p = params.data();
  const float* __restrict const in = inbox.data();
  const float* __restrict const out = outbox.data();
  const size_t whole = params.size() / kLane * kLane;
  if (inbox_is_change) {
    for (size_t i = 0; i < whole; i += kLane) {
      for (size_t k = 0; k < kLane; ++k) p[i + k] += in[i + k];
    }
  } else {
    for (size_t i = 0; i < whole; i += kLane) {
      for (size_t k = 0; k < kLane; ++k) p[i + k] += in[i + k] - out[i + k];
    }
  }
  for (size_t i = whole; i < params.size(); ++i) p[i] += inbox_is_change ? in[i] : in[i] - out[i];
}

}  // namespace

bool LinkClient::Impl::OutboxFree() {
  LinkControl& c = control();
  const uint64_t published = c.published.ticket.load(std::memory_order_relaxed);
  // Either word frees it: its averaging gave nothing, or its result is in the parameters.
  return c.released.value.load(std::memory_order_acquire) >= published ||
         c.applied.value.load(std::memory_order_relaxed) >= published;
}

void LinkClient::Impl::Publish(uint64_t ticket, std::span<const float> params) {
  LinkControl& c = control();
  // What the snapshot is of comes before its first values: they go out while the rest is copied.
  c.published.steps.store(steps, std::memory_order_relaxed);
  c.published.samples.store(samples, std::memory_order_relaxed);
  if (leases) {
    c.published.stream.store(leases->at().stream, std::memory_order_relaxed);
    c.published.position.store(leases->at().position, std::memory_order_relaxed);
  }
  c.filling.elements.store(0, std::memory_order_relaxed);
  c.filling.ticket.store(ticket, std::memory_order_release);
  const auto outbox = mapping->outbox();
  for (size_t first = 0; first < params.size(); first += kFilledAtOnce) {
    const auto part = params.subspan(first, std::min(kFilledAtOnce, params.size() - first));
    std::copy(part.begin(), part.end(), outbox.begin() + static_cast<std::ptrdiff_t>(first));
    if (first + part.size() == params.size()) break;  // the ticket says so
    c.filling.elements.store(first + part.size(), std::memory_order_release);
    RingBell(c.trainer_bell.value);
  }
  // Last, with release: who sees the ticket sees the whole snapshot.
  c.published.ticket.store(ticket, std::memory_order_release);
  RingBell(c.trainer_bell.value);
}

bool LinkClient::Impl::TakeResult(StepOutcome& outcome,
                                  absl::FunctionRef<void(std::span<const float>)> take) {
  LinkControl& c = control();
  const uint64_t ready = c.result_ready.ticket.load(std::memory_order_acquire);
  const uint64_t ticket = ready / 2;
  if (ticket == 0 || ticket != c.published.ticket.load(std::memory_order_relaxed) ||
      ticket == c.applied.value.load(std::memory_order_relaxed)) {
    return false;
  }
  if (ticket != voided) {
    outcome.applied = true;
    outcome.averaging = c.result_ready.averaging.load(std::memory_order_relaxed);
    take(mapping->inbox(static_cast<int>(ready % 2)));
  }
  c.applied.value.store(ticket, std::memory_order_release);
  RingBell(c.trainer_bell.value);
  return true;
}

bool LinkClient::Impl::Apply(std::span<float> params, StepOutcome& outcome) {
  return TakeResult(outcome, [&](std::span<const float> inbox) {
    AddChange(params, inbox, mapping->outbox(),
              control().mode.inbox_is_change.load(std::memory_order_relaxed) != 0);
  });
}

Status LinkClient::Impl::Adopt(std::span<float> params, Adoption adoption, StepOutcome& outcome) {
  LinkControl& c = control();
  const uint64_t request = c.adopt.request.load(std::memory_order_acquire);
  if (request / 2 <= c.adopted.value.load(std::memory_order_relaxed)) return absl::OkStatus();
  if (adoption == Adoption::kWhole && c.adopt.has_opaque.load(std::memory_order_relaxed) != 0 &&
      opaque_sink) {
    // First, because it can fail: the parameters are untouched then, so both or neither are
    // adopted.
    ASSIGN_OR_RETURN(HttpReply reply, http->Do("GET", "/v1/opaque", "", kAnswer, kMaxOpaque));
    RETURN_IF_ERROR(StatusOf(reply));
    if (Sha256(AsBytes(reply.body)).hex() != reply.headers["x-sha256"]) {
      return absl::DataLossError("the adopted trainer state does not match its hash");
    }
    RETURN_IF_ERROR(opaque_sink(AsBytes(reply.body)));
  }
  const auto inbox = mapping->inbox(static_cast<int>(request % 2));
  std::copy(inbox.begin(), inbox.end(), params.begin());
  outcome.adopted = true;
  outcome.averaging = c.adopt.averaging.load(std::memory_order_relaxed);
  if (gradients) TakeStep(params, outcome.averaging);
  // A result of the old parameters' snapshot must not be added to these.
  voided = c.published.ticket.load(std::memory_order_relaxed);
  if (leases) {
    leases->Drop();
    TellLeases();
  }
  c.adopted.value.store(request / 2, std::memory_order_release);
  RingBell(c.trainer_bell.value);
  return absl::OkStatus();
}

bool LinkClient::Impl::GiveOpaque() {
  LinkControl& c = control();
  const uint64_t wanted = c.opaque_wanted.value.load(std::memory_order_acquire);
  if (wanted == c.opaque_given.value.load(std::memory_order_relaxed)) return false;
  c.opaque_given.value.store(wanted, std::memory_order_release);  // once, also when it fails
  if (!opaque_source && !gradients) return true;
  // Where gradients are averaged it goes with the parameters, so there is one: an empty one is a
  // byte.
  const Bytes state = opaque_source ? opaque_source() : Bytes(1);
  std::string target = absl::StrCat("/v1/opaque?sequence=", wanted);
  if (gradients)
    absl::StrAppend(&target, "&step=", c.gradient.step.load(std::memory_order_relaxed));
  const auto reply = http->Do("PUT", target, AsString(state), kAnswer);
  if (!reply.ok()) lost = true;  // the next boundary connects again
  return true;
}

void LinkClient::Impl::WaitForResult(std::span<float> params, StepOutcome& outcome) {
  LinkControl& c = control();
  const uint64_t ticket = c.published.ticket.load(std::memory_order_relaxed);
  while (true) {
    const uint32_t rung = c.agent_bell.value.load(std::memory_order_acquire);
    // Released is read first: a result is stored before anything else releases its snapshot.
    const bool released = c.released.value.load(std::memory_order_acquire) >= ticket;
    if (Apply(params, outcome) || released) return;
    if (c.stop.value.load(std::memory_order_acquire) != 0) return;
    // A restarted agent has forgotten the snapshot, a frozen one must not freeze training. `c` may
    // be gone when this is false.
    const Time now = SteadyNow();
    if (!WatchAgent(now) || now - beat_moved >= options.agent_patience) return;
    WaitBell(c.agent_bell.value, rung, kSlice);
  }
}

}  // namespace crowdsurf::worker
