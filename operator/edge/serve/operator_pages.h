// Operator pages: what the operator serves besides certificates: health, readiness, metrics.
//
// Two ports: `health` (/healthz, /readyz; plain) for the kubelet, and `metrics` (/metrics, the
// Prometheus text format) for scrapers: HTTPS with a certificate made at the start, for those whom
// `admit` lets in, or plain HTTP for everybody. Nothing secret is on either. Threads and bounds are
// those of HttpServer: `ready` runs on its I/O thread, `admit` and the metrics on its pool.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/edge/http_server.h"
#include "base/edge/metrics_page.h"
#include "base/log.h"
#include "base/status.h"
#include "operator/edge/sign/certificate_authority.h"

namespace crowdsurf::controller {

class OperatorPages {
 public:
  struct Options {
    std::string listen = "0.0.0.0";
    int health_port = 8081;
    int metrics_port = 8443;  // 0: any free one; so is health_port
    // Given: HTTPS. It outlives this.
    const ServerIdentity* identity = nullptr;
    // Given: asked for every request's Authorization header, on the server's pool. Errors:
    // Unauthenticated 401, PermissionDenied 403, others 503.
    std::function<Status(const std::string& authorization)> admit = {};
    // Whether the process makes progress, from any thread: /healthz answers 503 while it does not.
    std::function<bool()> live = [] { return true; };
  };
  // ready: any thread, and it does not block. Errors: FailedPrecondition when a port is taken;
  // Internal.
  static StatusOr<std::unique_ptr<OperatorPages>> Start(const Options& options,
                                                        std::function<bool()> ready,
                                                        MetricsPage& metrics,
                                                        MetricRegistry& registry);  // outlive this

  int health_port() const { return health_.port(); }
  int metrics_port() const { return metrics_.port(); }

 private:
  OperatorPages(const Options& options, MetricRegistry& registry);
  HttpServer health_, metrics_;
};

}  // namespace crowdsurf::controller
