#include "operator/edge/reconcile/errands.h"

#include <chrono>
#include <utility>

#include "operator/edge/reconcile/controller_metrics.h"
#include "operator/edge/reconcile/no_escape.h"

namespace crowdsurf::controller {

Errands::Errands(MetricRegistry& metrics)
    : refused_(metrics.AddCounter("crowdsurf_operator_errands_refused_total",
                                  "Questions and events that found no room beside the loop.")),
      waits_(metrics.AddGauge("crowdsurf_operator_errands_waiting",
                              "Questions and events that are not dealt with yet.")),
      exceptions_(ExceptionsOf(metrics, "errands")),
      thread_([this] { Run(); }) {}

bool Errands::Post(std::function<void()> errand) {
  waits_.Add(1);
  const bool posted = waiting_.Post(std::move(errand));
  if (posted) return true;
  waits_.Add(-1);
  refused_.Add();
  return false;
}

void Errands::Stop() {
  stopping_ = true;
  waiting_.Close();
  if (thread_.joinable()) thread_.join();
}

void Errands::Run() {
  while (true) {
    const auto errand = waiting_.Take(std::chrono::steady_clock::time_point::max());
    if (!errand || stopping_) return;
    (void)NoEscape(&exceptions_, [&] {
      (*errand)();
      return absl::OkStatus();
    });
    waits_.Add(-1);
  }
}

}  // namespace crowdsurf::controller
