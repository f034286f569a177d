#include "operator/edge/kube/request_metrics.h"

#include <utility>
#include <vector>

namespace crowdsurf::controller {
namespace {

const std::vector<double> kRequestBuckets = {.005, .01, .025, .05, .1, .25, .5,
                                             1,    2.5, 5,    10,  30, 60};

}  // namespace

RequestMetrics::RequestMetrics(MetricRegistry* registry, std::string host)
    : registry_(registry), host_(std::move(host)) {}

void RequestMetrics::Answered(const std::string& method, int code) const {
  if (registry_ == nullptr) return;
  // client-go's label for a request without an answer, which its dashboards know.
  registry_
      ->AddCounter("rest_client_requests_total", "Requests to the API server, by answer.",
                   {{"method", method},
                    {"code", code == 0 ? "<error>" : std::to_string(code)},
                    {"host", host_}})
      .Add();
}

void RequestMetrics::Retried(const std::string& method, int code) const {
  if (registry_ == nullptr) return;
  registry_
      ->AddCounter("rest_client_request_retries_total",
                   "Requests sent again because the API server asked for it.",
                   {{"verb", method}, {"code", std::to_string(code)}, {"host", host_}})
      .Add();
}

void RequestMetrics::Took(const std::string& method, Duration waited, Duration took) const {
  if (registry_ == nullptr) return;
  registry_
      ->AddHistogram("rest_client_rate_limiter_duration_seconds",
                     "Time that requests waited for one of the client's connections.",
                     kRequestBuckets, {{"verb", method}, {"host", host_}})
      .Observe(waited.seconds());
  registry_
      ->AddHistogram("rest_client_request_duration_seconds",
                     "Duration of requests to the API server, without watches.", kRequestBuckets,
                     {{"verb", method}, {"host", host_}})
      .Observe(took.seconds());
}

}  // namespace crowdsurf::controller
