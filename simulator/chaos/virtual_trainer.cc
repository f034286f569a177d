#include "simulator/chaos/virtual_trainer.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>

namespace crowdsurf::simulator {

VirtualTrainer::VirtualTrainer(int node, TrainerOptions options, Rng rng, Violations& violations)
    : node_(node), options_(options), refuse_(options.refuse), rng_(rng), violations_(violations) {
  for (uint32_t i = 0; i < options_.elements; ++i)
    parameters_.push_back(static_cast<float>(rng_.Normal()));
  if (!options_.data.none()) leases_.emplace(options_.step_time, options_.data.unit);
}

void VirtualTrainer::Add(std::string_view statement, const std::string& what) {
  violations_.Add(statement, absl::StrCat("node ", node_, ": ", what));
}

void VirtualTrainer::Start(Time now) {
  if (started_) return;
  started_ = true;
  since_ = now;
}

void VirtualTrainer::Adopt(Time now, const RegionBuffer& region) {
  parameters_ = region.values;
  if (leases_) leases_->Adopt(now);
}

double VirtualTrainer::Samples(Time now) const {
  if (leases_) return static_cast<double>(leases_->Samples(now));
  return static_cast<double>(Steps(now)) * options_.samples_per_step;
}

uint64_t VirtualTrainer::Steps(Time now) const {
  if (!started_) return 0;
  if (leases_) return leases_->Done(now);
  return static_cast<uint64_t>((now - since_).nanoseconds() / options_.step_time.nanoseconds());
}

Time VirtualTrainer::NextBoundary(Time now) const {
  if (leases_) return leases_->NextBoundary(now);
  const auto next = static_cast<int64_t>(Steps(now)) + 1;
  return since_ + Nanoseconds(options_.step_time.nanoseconds() * next);
}

Time VirtualTrainer::Passes(Time now, uint64_t steps, double samples) const {
  if (!started_) return Time::Infinite();
  double least = steps > 0 ? static_cast<double>(steps) : HUGE_VAL;
  // A mark in samples is passed with a whole step.
  if (samples > 0) least = std::min(least, std::ceil(samples / options_.samples_per_step));
  if (!std::isfinite(least)) return Time::Infinite();
  if (leases_) {  // the next boundary is looked at: steps come when leases do
    const Time next = leases_->NextBoundary(now);
    return next > now ? next : Time::Infinite();
  }
  return since_ + Nanoseconds(options_.step_time.nanoseconds() * static_cast<int64_t>(least));
}

bool VirtualTrainer::Publish(worker::AveragingId averaging, SnapshotId snapshot, OriginId origin,
                             RegionBuffer& outbox) {
  if (in_use_)
    Add("outbox", absl::StrCat("snapshot for averaging ", averaging.value(),
                               " asked for while that of ", published_.value(), " is in use"));
  if (rng_.Bernoulli(refuse_)) return false;
  // Training is a random walk, so that snapshots differ.
  for (float& value : parameters_) value += static_cast<float>(0.1 * rng_.Normal());
  outbox.values = parameters_;
  outbox.origins.assign(parameters_.size(), origin);
  in_use_ = snapshot;
  published_ = averaging;
  return true;
}

void VirtualTrainer::OnDeliver(worker::AveragingId averaging, const RegionBuffer& outbox,
                               const RegionBuffer& result) {
  if (!in_use_ || published_ != averaging) {
    Add("flip", absl::StrCat("averaging ", averaging.value(), " delivered, but the snapshot is of ",
                             in_use_ ? published_.value() : 0));
    return;
  }
  in_use_.reset();
  // The change is added, as a trainer does that has gone on meanwhile (docs/trainer-link.md).
  for (size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i] += result.values[i] - outbox.values[i];
}

void VirtualTrainer::OnRelease(worker::AveragingId averaging) {
  if (in_use_ && published_ == averaging) in_use_.reset();
}

}  // namespace crowdsurf::simulator
