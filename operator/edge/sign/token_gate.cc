#include "operator/edge/sign/token_gate.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/digest.h"
#include "operator/edge/sign/bearer_token.h"
#include "operator/edge/sign/token_review.h"

namespace crowdsurf::controller {
namespace {

Counter& Reviews(MetricRegistry& metrics, const char* result) {
  return metrics.AddCounter("crowdsurf_operator_token_reviews_total",
                            "Tokens that were shown for a certificate or a report, by result.",
                            {{"result", result}});
}

}  // namespace

TokenGate::TokenGate(KubeClient& client, Ports ports, MetricRegistry& metrics)
    : client_(client),
      ports_(std::move(ports)),
      accepted_(Reviews(metrics, "accepted")),
      refused_(Reviews(metrics, "refused")),
      offline_(Reviews(metrics, "offline")),
      remembered_(Reviews(metrics, "remembered")),
      no_budget_(Reviews(metrics, "no_budget")),
      unavailable_(Reviews(metrics, "unavailable")) {}

StatusOr<TokenPod> TokenGate::Review(const std::string& token) {
  const auto claimed = LookAtToken(token, kAgentAudience, ports_.wall());
  if (!claimed.ok()) {
    offline_.Add();
    return claimed;
  }
  const std::string key = ToHex(Sha256(AsBytes(token)).view());
  const bool known = ports_.known(claimed->uid);
  {
    const Time now = ports_.clock();
    const std::lock_guard lock(mutex_);
    const auto before = refusals_.find(key);
    if (before != refusals_.end() && now < before->second.until) {
      remembered_.Add();
      return before->second.why;
    }
    // An issuer may change while a cluster runs, so another one is no reason to refuse.
    const bool issued = issuers_.empty() || issuers_.contains(claimed->issuer);
    if (!(known && issued ? workers_ : strangers_).Take(now)) {
      no_budget_.Add();
      return absl::UnavailableError("too many tokens are shown: ask again");
    }
  }
  StatusOr<TokenPod> pod = ReviewPodToken(client_, token);
  if (pod.ok()) {
    accepted_.Add();
    const std::lock_guard lock(mutex_);
    if (issuers_.size() < kMaxIssuers) issuers_.insert(claimed->issuer);
  } else if (absl::IsUnavailable(pod.status())) {
    unavailable_.Add();  // which says nothing about the token
  } else {
    refused_.Add();
    Remember(key, pod.status(), ports_.clock());
  }
  return pod;
}

void TokenGate::Remember(const std::string& key, const Status& why, Time now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(refusals_, [&](const auto& one) { return one.second.until <= now; });
  if (refusals_.size() >= kMaxRefused) {
    refusals_.erase(std::min_element(
        refusals_.begin(), refusals_.end(),
        [](const auto& a, const auto& b) { return a.second.until < b.second.until; }));
  }
  refusals_.insert_or_assign(key, Refused{why, now + kTokenRefusedFor});
}

}  // namespace crowdsurf::controller
