// TrainerPulse: does the trainer still make steps?
//
// A process that hangs holds its connection and looks alive; only its step counter stands still.
// Two answers, of different weight: *silent* (soon; the agent gives its seat back, so that no round
// waits for it, and takes it back with the next step: nothing is lost when it was only slow) and
// *hung* (much later; the owner of the process is asked to end it). A pause that ended well makes
// both more patient, so a trainer that evaluates for a minute is not taken for one that hangs
// the second time. One that knows of a long pause says so before it (OnBusy).
// Owner: the agent's host thread. Pure: (now, counters) in, a state out.
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"

namespace crowdsurf::worker {

class TrainerPulse {
 public:
  enum class State : uint8_t { kNone, kStepping, kSilent, kHung };

  // Without a step for `hung_after` the trainer hangs; infinite: that is never said. It is silent
  // after a third of that, at most kSilentAfter.
  explicit TrainerPulse(Duration hung_after);

  void OnRegistered(Time now);
  void OnGone();
  // The trainer says that it may make no step until then: it is not called hung before, silent as
  // ever. Its next step, and a later word, end that.
  void OnBusy(Time until) { busy_until_ = until; }
  // A look at the trainer's counter. kExcused: it waits for us (for state, for a result in
  // Blocking mode) or has been told to stop; that time does not count.
  enum class Duty : uint8_t { kSteps, kExcused };
  State Look(Time now, uint64_t steps, Duty duty = Duty::kSteps);

  State state() const { return state_; }
  Duration since_step(Time now) const { return now - moved_; }  // pre: registered

  static constexpr Duration kSilentAfter = Seconds(10);

 private:
  const Duration silent_after_, hung_after_;
  State state_ = State::kNone;
  uint64_t steps_ = 0;
  Time moved_;
  Time busy_until_;
  Duration longest_;  // pause between steps that ended
};

const char* NameOf(TrainerPulse::State state);  // "none", "stepping", "silent", "hung"

}  // namespace crowdsurf::worker
