#include "operator/edge/reconcile/stop_event.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/check.h"
#include "base/edge/clock.h"

namespace crowdsurf::controller {

StopEvent::StopEvent() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { CHECK(event_ >= 0); }

StopEvent::~StopEvent() { close(event_); }

void StopEvent::Set() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof one);
}

bool StopEvent::WaitFor(Duration time) const {
  const Time until = SteadyNow() + time;
  while (true) {
    pollfd polled = {event_, POLLIN, 0};
    // Rounded up below: a wait of 0 ms would spin through the last millisecond.
    const double left_ms = std::max(0.0, (until - SteadyNow()).milliseconds());
    if (poll(&polled, 1, static_cast<int>(std::min<double>(left_ms + 0.999, INT_MAX))) > 0)
      return true;
    if (SteadyNow() >= until) return false;  // else a signal interrupted it
  }
}

}  // namespace crowdsurf::controller
