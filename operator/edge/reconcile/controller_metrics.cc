#include "operator/edge/reconcile/controller_metrics.h"

namespace crowdsurf::controller {

Counter& ExceptionsOf(MetricRegistry& registry, const char* thread) {
  return registry.AddCounter("crowdsurf_operator_exceptions_total",
                             "Exceptions that a thread of the operator survived, by thread.",
                             {{"thread", thread}});
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
  // One job is worked on at a time, so it is the longest as well.
  longest_.Set(seconds);
  active_.Set(since == 0 ? 0 : 1);
}

}  // namespace crowdsurf::controller
