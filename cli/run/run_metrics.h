// RunMetrics: what `crowdsurf run` counts itself, beside the operator's own series: one row a
// metric.
//
// Served on the run's /metrics. Handles are shared and thread-safe.
#pragma once

#include "base/metrics.h"
#include "cli/screen/live_view.h"

namespace crowdsurf::cli {

struct RunMetrics {
  explicit RunMetrics(MetricRegistry& r) : registry(r) {}

  void Show(const Screen& screen) {
    wanted.Set(screen.wanted);
    training.Set(screen.training);
    samples_per_second.Set(screen.samples_per_second);
    if (screen.loss) loss.Set(*screen.loss);
    progress.Set(screen.progress.value_or(0));
    rounds.Set(static_cast<double>(screen.rounds));
    rounds_failed.Set(static_cast<double>(screen.failed));
    const double more = static_cast<double>(screen.preemptions) - preemptions.value();
    if (more > 0) preemptions.Add(more);
  }

  MetricRegistry& registry;
  Gauge& wanted =
      registry.AddGauge("crowdsurf_run_workers_wanted", "Workers that the job asks for.");
  Gauge& training = registry.AddGauge("crowdsurf_run_workers_training", "Workers that train now.");
  Gauge& samples_per_second = registry.AddGauge("crowdsurf_run_samples_per_second",
                                                "Samples a second, all workers together.");
  Gauge& loss = registry.AddGauge("crowdsurf_run_loss", "Mean loss of the workers.");
  Gauge& progress = registry.AddGauge("crowdsurf_run_progress_ratio", "Share of the target done.");
  Gauge& rounds =
      registry.AddGauge("crowdsurf_run_rounds_completed", "Rounds completed, summed over workers.");
  Gauge& rounds_failed = registry.AddGauge("crowdsurf_run_rounds_failed",
                                           "Rounds that failed for a worker that was to stay.");
  Counter& preemptions =
      registry.AddCounter("crowdsurf_run_preemptions_total", "Workers that the spot market took.");
  Counter& trainers_hung = registry.AddCounter(
      "crowdsurf_run_trainers_hung_total", "Trainers that made no step any more and were ended.");
  Counter& write_errors = registry.AddCounter("crowdsurf_run_write_errors_total",
                                              "Files of the run that could not be written.");
};

}  // namespace crowdsurf::cli
