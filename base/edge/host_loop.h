// HostLoop: the one thread of a process that owns all its cores.
//
// Everything else (gRPC callbacks, HTTP handlers, file watchers) posts closures to its bounded
// mailbox; the loop runs them in order with one reading of the clocks each, and calls the timer
// sources that are due, earliest deadline first. What was posted before a deadline is run before
// its timer: silence that a core finds is the silence of others, not a queue in front of this
// thread. At most four times the mailbox's capacity runs in between, so that no flood holds timers
// back for ever. Closures and timers never block: a slow one is counted. Shutdown is an event with
// a deadline, not an interruption: RequestStop tells every source, and Run returns when all say
// they are finished, or at the deadline.
//
// Threads: Run on the owning thread; Post, RequestStop, Now and Wall from any; the rest before Run
// or from the host thread.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/log.h"
#include "base/mailbox.h"
#include "base/metrics.h"
#include "base/time.h"

namespace crowdsurf {

// A core (or a group of them) as the loop sees it.
class TimerSource {
 public:
  virtual ~TimerSource() = default;
  virtual Time NextDeadline() const = 0;  // Time::Infinite() when idle
  virtual void OnTimer(Time now, WallTime wall) = 0;
  // Shutdown was asked for: finish what is in hand before `deadline`.
  virtual void OnStop(Time /*now*/, WallTime /*wall*/, Time /*deadline*/) {}
  // Polled after OnStop: may the loop end?
  virtual bool Stopped() const { return true; }
};

class HostLoop {
 public:
  using Closure = std::function<void(Time now, WallTime wall)>;

  // `metrics` and `logger`'s sink outlive the loop.
  HostLoop(size_t mailbox_capacity, MetricRegistry& metrics, Logger logger);

  // Runs `closure` on the host thread, after everything posted before. False (counted) when the
  // mailbox is full or the loop has ended; the closure is then destroyed unrun.
  [[nodiscard]] bool Post(Closure closure);

  // Sources are called in the order they were added when due at one time. Not owned.
  void AddSource(TimerSource* source);
  void RemoveSource(TimerSource* source);

  // Runs until stopped. Once.
  void Run();
  // Asks for the end within `grace`. The first call counts. A second with a shorter grace shortens.
  void RequestStop(Duration grace);

  // Steady clock as Time. Its origin is an hour before the loop's construction, so never zero.
  Time Now() const;
  static WallTime Wall();

 private:
  void Drain();
  void RunDueSources();
  bool Account(Time began);
  Time NextDeadline() const;
  void BeginStop();
  bool MayEnd() const;

  const int64_t origin_nanoseconds_;
  Mailbox<Closure> mailbox_;
  std::vector<TimerSource*> sources_;
  std::atomic<int64_t> stop_by_{0};  // Time in nanoseconds; 0: not asked
  bool stop_begun_ = false;
  Logger logger_;
  Counter& refused_;
  Counter& slow_;
  Counter& busy_;
  Gauge& longest_;
};

}  // namespace crowdsurf
