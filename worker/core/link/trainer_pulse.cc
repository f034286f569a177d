#include "worker/core/link/trainer_pulse.h"

#include <algorithm>

namespace crowdsurf::worker {
namespace {

// So many times the longest pause that ended well: the next of its kind may take longer.
constexpr double kTimesLongest = 3;

}  // namespace

TrainerPulse::TrainerPulse(Duration hung_after)
    : silent_after_(std::min(kSilentAfter, hung_after * (1.0 / 3))), hung_after_(hung_after) {}

void TrainerPulse::OnRegistered(Time now) {
  state_ = State::kStepping;
  steps_ = 0;
  moved_ = now;
  longest_ = Duration();
  busy_until_ = Time();
}

void TrainerPulse::OnGone() { state_ = State::kNone; }

TrainerPulse::State TrainerPulse::Look(Time now, uint64_t steps, Duty duty) {
  if (state_ == State::kNone) return state_;
  if (steps != steps_) {
    longest_ = std::max(longest_, now - moved_);
    steps_ = steps;
    moved_ = now;
    busy_until_ = Time();
    return state_ = State::kStepping;
  }
  if (duty == Duty::kExcused) {
    moved_ = now;
    return state_;
  }
  const Duration pause = now - moved_;
  if (pause >= std::max(hung_after_, longest_ * kTimesLongest) && now >= busy_until_)
    return state_ = State::kHung;
  // Once said, it holds until a step comes.
  if (state_ == State::kHung) return state_;
  if (pause >= std::max(silent_after_, longest_ * kTimesLongest)) state_ = State::kSilent;
  return state_;
}

const char* NameOf(TrainerPulse::State state) {
  switch (state) {
    case TrainerPulse::State::kNone:
      return "none";
    case TrainerPulse::State::kStepping:
      return "stepping";
    case TrainerPulse::State::kSilent:
      return "silent";
    case TrainerPulse::State::kHung:
      return "hung";
  }
  return "none";
}

}  // namespace crowdsurf::worker
