// Operator pages: what the operator serves besides certificates: health, readiness, metrics.
//
// Two plain HTTP ports: `health` (/healthz, /readyz) for the kubelet and `metrics` (/metrics, the
// Prometheus text format) for scrapers; nothing secret is on either. Each server has threads of its
// own until Stop. The registry must not be added to while it is served: declare first, then start.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"

namespace crowdsurf::controller {

std::string RenderMetrics(const MetricRegistry& registry);

// Lines on stderr with time and level, from `least` up ("debug", "info", "warning", "error").
std::unique_ptr<LogSink> MakeLogSink();
LogLevel LogLevelOf(const std::string& name);  // info for what is none

class OperatorPages {
 public:
  struct Options {
    std::string listen = "0.0.0.0";
    int health_port = 8081;
    int metrics_port = 8443;
  };
  // ready: any thread. Error: FailedPrecondition when a port is taken.
  static StatusOr<std::unique_ptr<OperatorPages>> Start(const Options& options,
                                                        std::function<bool()> ready,
                                                        const MetricRegistry& metrics);
  ~OperatorPages();

 private:
  OperatorPages();
  struct Server;
  std::unique_ptr<Server> health_, metrics_;
};

}  // namespace crowdsurf::controller
