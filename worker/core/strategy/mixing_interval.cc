#include "worker/core/strategy/mixing_interval.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {

void MixingInterval::OnPace(uint64_t step, double samples) {
  step_ = step;
  samples_ = samples;
}

void MixingInterval::Begin(Time now) {
  from_step_ = step_;
  from_samples_ = samples_;
  from_time_ = now;
}

void MixingInterval::BeginAt(Time now, uint64_t step, double samples) {
  step_ = std::max(step_, step);
  samples_ = std::max(samples_, samples);
  from_step_ = step;
  from_samples_ = samples;
  from_time_ = now;
}

bool MixingInterval::IsOver(Time now) const {
  switch (unit_) {
    case IntervalUnit::kSteps:
      // A snapshot is taken at the next boundary: asked one step ahead, it is in time.
      return static_cast<double>(step_) + 1 >= static_cast<double>(from_step_) + length_;
    case IntervalUnit::kSamples:
      return samples_ - from_samples_ >= length_;
    case IntervalUnit::kSeconds:
      return now - from_time_ >= Seconds(length_);
  }
  return false;
}

StrategyAction MixingInterval::Wake() const {
  switch (unit_) {
    case IntervalUnit::kSteps:
      // One step ahead, as in IsOver.
      return WakeAtTotals{from_step_ + static_cast<uint64_t>(length_) - 1, 0};
    case IntervalUnit::kSamples:
      return WakeAtTotals{0, from_samples_ + length_};
    case IntervalUnit::kSeconds:
      return SetStrategyTimer{from_time_ + Seconds(length_)};
  }
  CHECK(false);
}

}  // namespace crowdsurf::worker
