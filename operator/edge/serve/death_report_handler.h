// DeathReportHandler: takes peers' death reports, POST /v1/deaths of the signer's port
// (docs/kubernetes.md).
//
// Body {"dead": [names of workers]}, bearer token as for a certificate: it says who reports, and so
// of which job. Only who leads takes them: another replica answers FailedPrecondition (421), and
// the agent asks again until the Service gives it the leader. Who a token is, is remembered by its
// hash for a minute (a refusal for ten seconds), so a wave of reports is not one of reviews. What
// the names mean is judged by KubeCluster (death_reports.h). Thread-safe, on the server's threads.
// Bounds: kMaxTokens, kMaxNames a report, four reports a reporter and second.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"
#include "operator/core/decide/death_reports.h"
#include "operator/edge/sign/token_review.h"

namespace crowdsurf::controller {

class DeathReportHandler {
 public:
  static constexpr size_t kMaxTokens = 4096;
  static constexpr size_t kMaxNames = 64;

  struct Ports {
    std::function<StatusOr<TokenPod>(const std::string& token)> review;
    std::function<bool()> leading;
    std::function<bool(DeathReport)> post;  // false: no room
    std::function<Time()> clock;
  };
  DeathReportHandler(Ports ports, MetricRegistry& metrics);

  // SignerOptions::report. Errors: FailedPrecondition 421, another one leads; Unauthenticated 401;
  // PermissionDenied 403; InvalidArgument 400; ResourceExhausted 429, too often; others 503.
  Status Take(const std::string& token, const std::string& body);

 private:
  struct Known {
    StatusOr<TokenPod> pod;
    Time until;
    Time reported;
  };
  Status Judge(const std::string& token, const std::string& body);
  StatusOr<TokenPod> Who(const std::string& token);
  void Remember(const std::string& key, const StatusOr<TokenPod>& pod, Time now);

  const Ports ports_;
  Counter& taken_;
  Counter& refused_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;  // by the token's SHA-256
};

}  // namespace crowdsurf::controller
