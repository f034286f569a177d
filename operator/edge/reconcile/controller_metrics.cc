#include "operator/edge/reconcile/controller_metrics.h"

namespace crowdsurf::controller {
namespace {

// client-go's range, thinner: a microsecond to a minute.
const std::vector<double> kQueueBuckets = {.0001, .0005, .001, .005, .01, .025, .05, .1,
                                           .25,   .5,    1,    2.5,  5,   10,   30,  60};

const MetricLabels kQueue = {{"name", "trainingjob"}};
const MetricLabels kController = {{"controller", "trainingjob"}};

}  // namespace

Counter& ExceptionsOf(MetricRegistry& registry, const char* thread) {
  return registry.AddCounter("crowdsurf_operator_exceptions_total",
                             "Exceptions that a thread of the operator survived, by thread.",
                             {{"thread", thread}});
}

ControllerMetrics::ControllerMetrics(MetricRegistry& registry)
    : depth_(registry.AddGauge("workqueue_depth", "Keys that wait, delayed ones too.", kQueue)),
      adds_(registry.AddCounter("workqueue_adds_total", "Keys added.", kQueue)),
      retries_(registry.AddCounter("workqueue_retries_total", "Keys tried again.", kQueue)),
      waited_(registry.AddHistogram("workqueue_queue_duration_seconds",
                                    "From the moment a key was due to its turn.", kQueueBuckets,
                                    kQueue)),
      worked_(registry.AddHistogram("workqueue_work_duration_seconds", "Duration of a key's turn.",
                                    kQueueBuckets, kQueue)),
      unfinished_(registry.AddGauge("workqueue_unfinished_work_seconds",
                                    "How long the turn under way has taken.", kQueue)),
      longest_(registry.AddGauge("workqueue_longest_running_processor_seconds",
                                 "The longest of the turns under way; there is one worker.",
                                 kQueue)),
      active_(
          registry.AddGauge("controller_runtime_active_workers", "Turns under way.", kController)),
      reconcile_(registry.AddHistogram("controller_runtime_reconcile_time_seconds",
                                       "Duration of a reconcile.", kQueueBuckets, kController)) {
  registry
      .AddGauge("controller_runtime_max_concurrent_reconciles", "Most turns at once.", kController)
      .Set(1);
}

void ControllerMetrics::Begin(Time now, Duration waited) {
  waited_.Observe(waited.seconds());
  since_ = now.nanoseconds();
}

void ControllerMetrics::End(Time now) {
  const double seconds = (now - Time::FromNanoseconds(since_.exchange(0))).seconds();
  worked_.Observe(seconds);
  reconcile_.Observe(seconds);
}

void ControllerMetrics::Show(const WorkQueue& queue) {
  depth_.Set(static_cast<double>(queue.depth()));
  adds_.Add(static_cast<double>(queue.adds()) - adds_.value());
  retries_.Add(static_cast<double>(queue.retries()) - retries_.value());
}

void ControllerMetrics::Refresh(Time now) {
  const int64_t since = since_;
  const double seconds = since == 0 ? 0 : (now - Time::FromNanoseconds(since)).seconds();
  unfinished_.Set(seconds);
  longest_.Set(seconds);
  active_.Set(since == 0 ? 0 : 1);
}

}  // namespace crowdsurf::controller
