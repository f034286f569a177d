// Pulse: whether the deciding loop makes progress.
//
// The loop beats in every turn and before every job; it waits 100 ms at most when it has nothing to
// do. Without a beat for 20 s it is stuck: the Lease is renewed no more, so that another operator
// takes over, and /healthz fails, so that kubelet ends this one. Thread-safe; the clock is read on
// any thread.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "base/edge/clock.h"

namespace crowdsurf::controller {

class Pulse {
 public:
  explicit Pulse(std::function<Time()> clock = SteadyNow, Duration most = Seconds(20))
      : clock_(std::move(clock)), max_(most) {
    Beat();
  }
  void Beat() { last_ = clock_().nanoseconds(); }
  bool beats() const { return clock_() - Time::FromNanoseconds(last_) <= max_; }

 private:
  const std::function<Time()> clock_;
  const Duration max_;
  std::atomic<int64_t> last_{0};
};

}  // namespace crowdsurf::controller
