// RequestMetrics: the rest_client_* series of the requests to one API server.
//
// Named as client-go names them, so that panels made for other operators work. Owned by a
// KubeClient. Without a registry nothing is counted. Thread-safe like the handles it makes. Bounds:
// one series a method and code of HTTP.
#pragma once

#include <string>

#include "base/metrics.h"
#include "base/time.h"

namespace crowdsurf::controller {

class RequestMetrics {
 public:
  // `registry` may be null, else it outlives this. `host`: of the API server, as a label.
  RequestMetrics(MetricRegistry* registry, std::string host);

  // code: of HTTP; 0: no answer.
  void Answered(const std::string& method, int code) const;
  // One that is sent again because the API server asked for it, with `code`.
  void Retried(const std::string& method, int code) const;
  // How long a request waited for a connection, and took then.
  void Took(const std::string& method, Duration waited, Duration took) const;

 private:
  MetricRegistry* const registry_;
  const std::string host_;
};

}  // namespace crowdsurf::controller
