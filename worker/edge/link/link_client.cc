#include "worker/edge/link/link_client.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/edge/clock.h"
#include "worker/core/subnet/index_sets.h"
#include "worker/edge/link/link_client_impl.h"

namespace crowdsurf::worker {

LinkClient::LinkClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LinkClient::~LinkClient() = default;

StatusOr<LinkRegistration> LinkClient::Register(std::vector<LinkTensor> tensors) {
  impl_->tensors = std::move(tensors);
  return impl_->Register();
}

void LinkClient::SetOpaque(OpaqueSource source, OpaqueSink sink) {
  impl_->opaque_source = std::move(source);
  impl_->opaque_sink = std::move(sink);
}

void LinkClient::Impl::RingMarks() {
  LinkControl& c = control();
  // Pairs with LinkServer::WakeAt, which stores the steps last.
  const uint64_t at_steps = c.wake_at.steps.load(std::memory_order_acquire);
  const uint64_t at_samples = c.wake_at.samples.load(std::memory_order_relaxed);
  const bool steps_due = at_steps != 0 && steps >= at_steps && at_steps != rung_steps;
  const bool samples_due = at_samples != 0 && samples >= at_samples && at_samples != rung_samples;
  if (!steps_due && !samples_due) return;
  // One ring a mark, or every later step would wake the agent.
  rung_steps = at_steps;
  rung_samples = at_samples;
  RingBell(c.trainer_bell.value);
}

void LinkClient::Impl::Count(uint64_t new_samples, double loss) {
  LinkControl& c = control();
  training = true;
  ++steps;
  samples += new_samples;
  // Samples first (docs/trainer-link.md, section 6, step 1).
  c.samples.value.store(samples, std::memory_order_relaxed);
  c.steps.value.store(steps, std::memory_order_release);
  if (std::isfinite(loss)) {
    c.progress.loss.store(loss, std::memory_order_relaxed);
    c.progress.sequence.store(steps, std::memory_order_relaxed);
  }
}

void LinkClient::Impl::Finish(StepOutcome& outcome) {
  LinkControl& c = control();
  outcome.stop = c.stop.value.load(std::memory_order_acquire) != 0;
  outcome.leaving = c.notice.flag.load(std::memory_order_acquire) != 0;
  outcome.agent_lost = lost;
  outcome.lr_scale = c.lr_scale.value.load(std::memory_order_relaxed);
  outcome.job_samples = c.job.samples.load(std::memory_order_relaxed);
}

void LinkClient::Impl::CountStall(Time began, StepOutcome& outcome) {
  outcome.stall = SteadyNow() - began;
  control().stall_ns.value.fetch_add(static_cast<uint64_t>(outcome.stall.nanoseconds()),
                                     std::memory_order_relaxed);
}

StatusOr<StepOutcome> LinkClient::Start(std::span<float> params, Duration patience) {
  Impl& self = *impl_;
  CHECK(self.mapping.has_value());
  CHECK_EQ(params.size(), self.mapping->geometry().elements);
  Time alive = SteadyNow();
  StepOutcome outcome;
  while (true) {
    LinkControl& c = self.control();
    // Before the words: a bell between the look and the wait ends the wait at once.
    const uint32_t rung = c.agent_bell.value.load(std::memory_order_acquire);
    if (c.hold.value.load(std::memory_order_acquire) == 0 ||
        c.stop.value.load(std::memory_order_acquire) != 0) {
      RETURN_IF_ERROR(self.Adopt(params, Impl::Adoption::kWhole, outcome));
      break;
    }
    const Time now = SteadyNow();
    self.WatchAgent(now);
    // An agent that beats is waited for without end: fetching the job's state may take long.
    if (!self.lost && now - self.beat_moved < self.options.agent_patience) alive = now;
    if (now - alive > patience) {
      return absl::UnavailableError(absl::StrCat("the agent at ", self.dir, " has gone"));
    }
    // Through the mapping of now: a restarted agent without the old file makes a new one.
    WaitBell(self.control().agent_bell.value, rung, self.lost ? Impl::kRetry : Impl::kSlice);
  }
  self.training = true;
  self.Finish(outcome);
  return outcome;
}

StepOutcome LinkClient::StepDone(uint64_t samples, double loss, std::span<float> params) {
  Impl& self = *impl_;
  CHECK(self.mapping.has_value());
  CHECK_EQ(params.size(), self.mapping->geometry().elements);
  const Time began = SteadyNow();
  self.Count(samples, loss);
  if (self.leases) {
    self.leases->Trained();
    self.TellLeases();
  }
  return self.Boundary(params, began);
}

// All that a step boundary is for, but to count.
StepOutcome LinkClient::Impl::Boundary(std::span<float> params, Time began) {
  WatchAgent(began);
  LinkControl& c = control();
  StepOutcome outcome;
  // Wanted before result: a result that is out before the next request must be in before the next
  // snapshot overwrites the outbox it belongs to.
  const uint64_t wanted = c.publish_wanted.value.load(std::memory_order_acquire);
  bool touched = Apply(params, outcome);
  if (c.adopt.request.load(std::memory_order_relaxed) / 2 >
      c.adopted.value.load(std::memory_order_relaxed)) {
    const Status adopted = Adopt(params, Adoption::kWhole, outcome);
    // No connection: tried again at the next boundary. A bad opaque state: the parameters alone.
    lost = absl::IsUnavailable(adopted) || absl::IsDeadlineExceeded(adopted);
    if (!adopted.ok() && !lost) Adopt(params, Adoption::kParametersOnly, outcome).IgnoreError();
    touched = true;
  }
  const uint64_t published = c.published.ticket.load(std::memory_order_relaxed);
  const uint32_t cadence = c.mode.cadence_steps.load(std::memory_order_relaxed);
  const bool due = wanted > published || (cadence != 0 && steps % cadence == 0);
  if (due && OutboxFree()) {
    Publish(std::max(wanted, published + 1), params);
    outcome.published = touched = true;
    if (c.mode.overlap.load(std::memory_order_relaxed) ==
        static_cast<uint32_t>(LinkOverlap::kBlocking)) {
      WaitForResult(params, outcome);
    }
  }
  touched |= GiveOpaque();  // not through `c`: the wait may have mapped another file
  RingMarks();
  Finish(outcome);
  if (touched) CountStall(began, outcome);
  return outcome;
}

StatusOr<std::optional<IndexSets>> LinkClient::TakeIndexSets() {
  CHECK(impl_->mapping.has_value());
  LinkControl& c = impl_->control();
  const uint64_t version = c.index_version.value.load(std::memory_order_acquire);
  if (version == c.index_taken.value.load(std::memory_order_relaxed)) return std::nullopt;
  auto sets = DecodeIndexSets(impl_->mapping->index_sets(), impl_->units);
  if (!sets) return absl::DataLossError("the agent's index sets are none of these tensors'");
  c.index_taken.value.store(version, std::memory_order_release);
  return sets;
}

void LinkClient::SetMetric(size_t index, double value) {
  CHECK_LT(index, impl_->options.metrics.size());
  LinkControl& c = impl_->control();
  c.metrics[index].store(value, std::memory_order_relaxed);
  c.progress.sequence.fetch_add(1, std::memory_order_relaxed);
}

void LinkClient::AcknowledgeStop() {
  LinkControl& c = impl_->control();
  c.stop_acknowledged.value.store(1, std::memory_order_release);
  RingBell(c.trainer_bell.value);
}

}  // namespace crowdsurf::worker
