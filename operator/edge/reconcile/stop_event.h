// StopEvent: that a process is to stop, for threads that wait meanwhile.
//
// Once set it stays set. Set may be called from a signal handler, which no condition variable
// allows; that is why it is an eventfd. Thread-safe. Waits end at once when it is set.
#pragma once

#include "base/time.h"

namespace crowdsurf::controller {

class StopEvent {
 public:
  StopEvent();
  ~StopEvent();
  StopEvent(const StopEvent&) = delete;
  StopEvent& operator=(const StopEvent&) = delete;

  void Set();
  bool IsSet() const { return WaitFor(Duration()); }
  // Until it is set, at most for `time`. Whether it is set.
  bool WaitFor(Duration time) const;

 private:
  const int event_;
};

}  // namespace crowdsurf::controller
