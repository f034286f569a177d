// MetricsPage: what a program answers to GET /metrics.
//
// The program's registry as text format 0.0.4, with the process's own figures (process_*) and
// crowdsurf_build_info, which are read anew at each Render. Hooks fill gauges that only a scrape
// needs (an age, a queue's depth). Any thread; one Render at a time, the others wait. The registry
// outlives the page. Source: Prometheus client libraries' process collector.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/metrics.h"

namespace crowdsurf {

// Families in order of name; those without series are left out. O(series).
std::string RenderMetrics(const MetricRegistry& registry);

class MetricsPage {
 public:
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

  // program: "crowdsurf-worker", "crowdsurf-operator", "crowdsurf".
  MetricsPage(MetricRegistry& registry, const std::string& program);

  // Called before each Render, on its thread. Before the first Render.
  void Before(std::function<void()> hook) { hooks_.push_back(std::move(hook)); }
  std::string Render();

 private:
  void ReadProcess();

  MetricRegistry& registry_;
  Counter& cpu_seconds_;
  Gauge& resident_bytes_;
  Gauge& virtual_bytes_;
  Gauge& open_fds_;
  Gauge& max_fds_;
  Gauge& start_seconds_;
  std::vector<std::function<void()>> hooks_;
  std::mutex mutex_;
};

}  // namespace crowdsurf
