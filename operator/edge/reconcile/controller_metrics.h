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
#include <vector>

#include "base/metrics.h"
#include "base/time.h"
#include "operator/core/observe/work_queue.h"

namespace crowdsurf::controller {

// Exceptions that a thread of the operator caught and lived on after; thread: "loop", "lease",
// "watch", "poller", "prober", "keys", "errands"; and of whichever thread "client", of requests,
// and "projection".
Counter& ExceptionsOf(MetricRegistry& registry, const char* thread);

class ControllerMetrics {
 public:
  explicit ControllerMetrics(MetricRegistry& registry) : registry_(registry) { max_active_.Set(1); }

  // Around the work on one key, which had waited so long in the queue.
  void Begin(Time now, Duration waited);
  void End(Time now);
  void Show(const WorkQueue& queue);
  void Refresh(Time now);  // any thread

 private:
  // client-go's range, thinner: a microsecond to a minute.
  static inline const std::vector<double> kBuckets = {.0001, .0005, .001, .005, .01, .025, .05, .1,
                                                      .25,   .5,    1,    2.5,  5,   10,   30,  60};
  static inline const MetricLabels kQueue = {{"name", "trainingjob"}};
  static inline const MetricLabels kController = {{"controller", "trainingjob"}};

  MetricRegistry& registry_;
  Gauge& depth_ =
      registry_.AddGauge("workqueue_depth", "Keys that wait, delayed ones too.", kQueue);
  Counter& adds_ = registry_.AddCounter("workqueue_adds_total", "Keys added.", kQueue);
  Counter& retries_ = registry_.AddCounter("workqueue_retries_total", "Keys tried again.", kQueue);
  Histogram& waited_ =
      registry_.AddHistogram("workqueue_queue_duration_seconds",
                             "From the moment a key was due to its turn.", kBuckets, kQueue);
  Histogram& worked_ = registry_.AddHistogram("workqueue_work_duration_seconds",
                                              "Duration of a key's turn.", kBuckets, kQueue);
  Gauge& unfinished_ = registry_.AddGauge("workqueue_unfinished_work_seconds",
                                          "How long the turn under way has taken.", kQueue);
  Gauge& longest_ =
      registry_.AddGauge("workqueue_longest_running_processor_seconds",
                         "The longest of the turns under way; there is one worker.", kQueue);
  Gauge& active_ =
      registry_.AddGauge("controller_runtime_active_workers", "Turns under way.", kController);
  Gauge& max_active_ = registry_.AddGauge("controller_runtime_max_concurrent_reconciles",
                                          "Most turns at once.", kController);
  Histogram& reconcile_ = registry_.AddHistogram("controller_runtime_reconcile_time_seconds",
                                                 "Duration of a reconcile.", kBuckets, kController);
  std::atomic<int64_t> since_{0};  // of the work under way, steady nanoseconds; 0: none
};

}  // namespace crowdsurf::controller
