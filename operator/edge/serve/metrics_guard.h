// MetricsGuard: who may read the operator's metrics, as the API server says.
//
// A scraper shows the bearer token of its ServiceAccount: a TokenReview names it, and a
// SubjectAccessReview says whether it may `get` the path /metrics (controller-runtime's rule, so
// its ClusterRoles work unchanged). Verdicts are remembered for a minute, refusals for ten seconds,
// by the token's hash: tokens are kept nowhere. Who was admitted within the hour is asked about at
// once; all others share a budget, so that they cannot make a flood of reviews. Thread-safe; it
// asks the API server on the caller's thread. Bound: kMaxVerdicts, the oldest go. Source:
// docs/metrics.md.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"
#include "base/token_bucket.h"
#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::controller {

class MetricsGuard {
 public:
  static constexpr size_t kMaxVerdicts = 256;
  static constexpr double kStrangersBurst = 20, kStrangersASecond = 5;

  // client outlives this.
  MetricsGuard(KubeClient& client, std::function<Time()> clock, MetricRegistry& metrics);

  // The value of a request's Authorization header. Errors: Unauthenticated (401), PermissionDenied
  // (403), Unavailable (503) when the API server cannot be asked, which is not remembered.
  Status Admit(const std::string& authorization);

 private:
  struct Verdict {
    Status status;
    Time until;   // it is believed
    Time forget;  // and known
  };
  Status Ask(const std::string& token);
  void Remember(const std::string& key, const Status& status, Time now);

  KubeClient& client_;
  const std::function<Time()> clock_;
  Counter& admitted_;
  Counter& refused_;
  Counter& no_budget_;
  std::mutex mutex_;
  TokenBucket strangers_{kStrangersBurst, kStrangersASecond};
  std::map<std::string, Verdict> verdicts_;  // by the token's SHA-256
};

}  // namespace crowdsurf::controller
