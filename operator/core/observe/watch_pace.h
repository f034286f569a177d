// WatchPace: when to list or watch again after a list or a watch has ended.
//
// A watch that lasted may be followed at once by the next. All else waits: failures, watches that
// end as soon as they begin (a proxy's time-out, a server that is overloaded), versions that expire
// again and again. The wait doubles from 0.8 s to 30 s, with jitter, and begins anew after two
// minutes that worked (client-go's reflector). Differs: a server that is away is asked every 2 s,
// because a refused connection costs nobody anything, and jobs wait for the operator when the
// server is back. Time is an argument. Owner: a reflector's thread. Single sequence.
#pragma once

#include "base/backoff.h"
#include "base/rng.h"
#include "base/time.h"

namespace crowdsurf::controller {

class WatchPace {
 public:
  static constexpr Backoff kBackoff{
      .initial = Milliseconds(800), .most = Seconds(30), .factor = 2, .jitter = 0.5};
  static constexpr Backoff kAwayBackoff{
      .initial = Milliseconds(500), .most = Seconds(2), .factor = 2, .jitter = 0.5};
  static constexpr Duration kHealthy = Seconds(120);
  // Servers give a watch the minutes that it asked for; a second of it is a refusal in disguise.
  static constexpr Duration kShort = Seconds(1);

  // By the server's time-out; without any answer; by anything else.
  enum class End { kServed, kUnanswered, kFailed };

  explicit WatchPace(Rng rng) : rng_(rng) {}

  // What began at `begun` has ended at `now`: how long to wait before the next.
  Duration After(End end, Time begun, Time now);
  // A watch that was served, but too shortly.
  static bool IsShort(Time begun, Time now) { return now - begun < kShort; }

 private:
  Rng rng_;
  int failures_ = 0;
  int unanswered_ = 0;  // in a row
  Time failed_at_;      // the last one, with the wait that followed it
};

}  // namespace crowdsurf::controller
