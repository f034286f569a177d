// Gradients: gathered until the share is there, and the step of all workers (link_client.h).
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/edge/clock.h"
#include "worker/edge/link/link_client_impl.h"

namespace crowdsurf::worker {

StepOutcome LinkClient::GradientDone(uint64_t samples, double loss, std::span<const float> gradient,
                                     std::span<float> params, const OptimizerStep& step) {
  Impl& self = *impl_;
  CHECK(self.mapping.has_value() && self.gradients);
  CHECK_EQ(params.size(), self.mapping->geometry().elements);
  CHECK_EQ(gradient.size(), params.size());
  const Time began = SteadyNow();
  self.Count(samples, loss);
  self.WatchAgent(began);
  StepOutcome outcome;
  self.AdoptIfAsked(params, outcome);
  // Else it is of parameters that are no more.
  if (!outcome.adopted) self.Gather(samples, gradient);
  self.MeetOthers(params, step, outcome);
  self.Finish(outcome);
  if (outcome.published || outcome.adopted) self.CountStall(began, outcome);
  return outcome;
}

void LinkClient::Impl::Gather(uint64_t batch, std::span<const float> gradient) {
  const bool finite =
      std::all_of(gradient.begin(), gradient.end(), [](float x) { return std::isfinite(x); });
  if (batch == 0 || !finite) return;
  if (gathered == 0) {
    mean.assign(gradient.begin(), gradient.end());
  } else {
    const auto part =
        static_cast<float>(static_cast<double>(batch) / static_cast<double>(gathered + batch));
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += (gradient[i] - mean[i]) * part;
  }
  gathered += batch;
  control().gradient.gathered.store(gathered, std::memory_order_release);
}

// Once, when it is there.
void LinkClient::Impl::TellShare() {
  LinkControl& c = control();
  const bool there = gathered > 0 && gathered >= c.share.value.load(std::memory_order_acquire);
  if (there && !share_told) {
    c.gradient.shares.fetch_add(1, std::memory_order_release);
    RingBell(c.trainer_bell.value);
  }
  share_told = there;
}

void LinkClient::Impl::AdoptIfAsked(std::span<float> params, StepOutcome& outcome) {
  LinkControl& c = control();
  if (c.adopt.request.load(std::memory_order_relaxed) / 2 <=
      c.adopted.value.load(std::memory_order_relaxed))
    return;
  const Status adopted = Adopt(params, Adoption::kWhole, outcome);
  // No connection: tried again at the next look. A bad opaque state: the parameters alone.
  lost = absl::IsUnavailable(adopted) || absl::IsDeadlineExceeded(adopted);
  if (!adopted.ok() && !lost) Adopt(params, Adoption::kParametersOnly, outcome).IgnoreError();
}

// What was gathered is of the parameters before, and is dropped.
void LinkClient::Impl::TakeStep(std::span<const float> params, uint64_t averaging) {
  LinkControl& c = control();
  std::copy(params.begin(), params.end(), mapping->inbox(0).begin());
  gathered = 0;
  share_told = false;
  c.gradient.gathered.store(0, std::memory_order_relaxed);
  c.gradient.step.store(averaging, std::memory_order_release);
}

bool LinkClient::Impl::ApplyGradient(std::span<float> params, const OptimizerStep& step,
                                     StepOutcome& outcome) {
  return TakeResult(outcome, [&](std::span<const float> of_all) {
    step(of_all);
    TakeStep(params, outcome.averaging);
  });
}

// Until the step is taken, or there is nothing to wait for: the share is not there.
void LinkClient::Impl::MeetOthers(std::span<float> params, const OptimizerStep& step,
                                  StepOutcome& outcome) {
  while (!outcome.applied && !outcome.adopted) {
    LinkControl& c = control();
    const uint32_t rung = c.agent_bell.value.load(std::memory_order_acquire);
    AdoptIfAsked(params, outcome);
    GiveOpaque();  // of these parameters: joiners take both
    if (outcome.adopted || ApplyGradient(params, step, outcome)) continue;
    const uint64_t published = c.published.ticket.load(std::memory_order_relaxed);
    const uint64_t wanted = c.publish_wanted.value.load(std::memory_order_acquire);
    const bool waits = !OutboxFree();
    if (!waits && wanted > published && gathered > 0) {
      c.published.gathered.store(gathered, std::memory_order_relaxed);
      Publish(wanted, mean);
      outcome.published = true;
      continue;
    }
    TellShare();
    if (!waits && !share_told) return;
    if (c.stop.value.load(std::memory_order_acquire) != 0) return;
    // Without an agent more is gathered: one that leaves ends its connection, and beats no more.
    // `c` may be gone when this is false.
    if (http && !http->alive()) lost = true;
    const Time now = SteadyNow();
    if (!WatchAgent(now) || now - beat_moved >= options.agent_patience) return;
    WaitBell(control().agent_bell.value, rung, kSlice);
  }
}

}  // namespace crowdsurf::worker
