// TokenGate: which pod a stranger's token is of, at a cost to the API server that has a bound.
//
// Anybody who reaches the signer's port may show tokens. In this order: what the token says of
// itself (token_look.h) is looked at offline; a refusal is remembered for ten seconds by the
// token's hash; then a budget is asked, and only then the API server, by a client that nobody else
// uses, so that neither its connections nor a pause that it earns delay the operator's own work. A
// token that names a worker that the operator knows has a budget of its own: whoever does not know
// the uid of a live worker, or says another issuer than tokens that the API server took, cannot use
// that up. Thread-safe; blocks for one request. Bounds: kMaxRefused refusals, the oldest go;
// kMaxIssuers issuers. Metric: crowdsurf_operator_token_reviews_total{result}.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"
#include "base/token_bucket.h"
#include "operator/core/observe/token_look.h"
#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::controller {

class TokenGate {
 public:
  static constexpr size_t kMaxRefused = 1024;
  static constexpr size_t kMaxIssuers = 8;  // an API server has one, and old ones for a time
  // Of workers: a job of a thousand that starts at once is through in ten seconds. Of all others:
  // an API server answers thousands a second.
  static constexpr double kWorkersBurst = 400, kWorkersASecond = 100;
  static constexpr double kStrangersBurst = 20, kStrangersASecond = 5;

  struct Ports {
    std::function<bool(const std::string& pod_uid)> known;  // a worker of ours
    std::function<WallTime()> wall;
    std::function<Time()> clock;
  };
  // client outlives this.
  TokenGate(KubeClient& client, Ports ports, MetricRegistry& metrics);

  // Errors: those of ReviewPodToken; Unavailable also when the budget is used up.
  StatusOr<TokenPod> Review(const std::string& token);

 private:
  struct Refused {
    Status why;
    Time until;
  };
  void Remember(const std::string& key, const Status& why, Time now);

  KubeClient& client_;
  const Ports ports_;
  Counter& accepted_;
  Counter& refused_;
  Counter& offline_;
  Counter& remembered_;
  Counter& no_budget_;
  Counter& unavailable_;
  std::mutex mutex_;
  TokenBucket workers_{kWorkersBurst, kWorkersASecond};
  TokenBucket strangers_{kStrangersBurst, kStrangersASecond};
  std::map<std::string, Refused> refusals_;  // by the token's SHA-256
  std::set<std::string> issuers_;            // of tokens that the API server took
};

}  // namespace crowdsurf::controller
