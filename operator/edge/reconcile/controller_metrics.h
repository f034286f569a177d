// ControllerMetrics: what controller-runtime's and client-go's dashboards expect of a controller
// and its queue, under their names (controller_runtime_*, workqueue_*).
//
// The loop's thread counts; Refresh, on a scrape's thread, fills what only a scrape can know: how
// long the work under way has taken. There is one worker, so its age is also the longest.
// Exceptions of a turn are the reconciler's to count, those of the threads around it are counted
// by whose they were.
#pragma once

#include <atomic>
#include <string>

#include "base/metrics.h"
#include "base/time.h"
#include "operator/core/observe/work_queue.h"

namespace crowdsurf::controller {

// Exceptions that a thread of the operator caught and lived on after; thread: "loop", "lease",
// "watch", "poller", "prober"; and of whichever thread "client", of requests, and "projection".
Counter& ExceptionsOf(MetricRegistry& registry, const char* thread);

class ControllerMetrics {
 public:
  explicit ControllerMetrics(MetricRegistry& registry);

  // Around the work on one key, which had waited so long in the queue.
  void Begin(Time now, Duration waited);
  void End(Time now);
  void Show(const WorkQueue& queue);
  void Refresh(Time now);  // any thread

 private:
  Gauge& depth_;
  Counter& adds_;
  Counter& retries_;
  Histogram& waited_;
  Histogram& worked_;
  Gauge& unfinished_;
  Gauge& longest_;
  Gauge& active_;
  Histogram& reconcile_;
  std::atomic<int64_t> since_{0};  // of the work under way, steady nanoseconds; 0: none
};

}  // namespace crowdsurf::controller
