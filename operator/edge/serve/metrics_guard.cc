#include "operator/edge/serve/metrics_guard.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/digest.h"
#include "operator/edge/sign/bearer_token.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

// Of an account that was admitted: a scraper's token is renewed within the hour.
constexpr Duration kAdmittedFor = Seconds(3600);

Counter& Reviews(MetricRegistry& metrics, const char* result) {
  return metrics.AddCounter("crowdsurf_operator_scrapes_total", "Requests for metrics, by verdict.",
                            {{"result", result}});
}

}  // namespace

MetricsGuard::MetricsGuard(KubeClient& client, std::function<Time()> clock, MetricRegistry& metrics)
    : client_(client),
      clock_(std::move(clock)),
      admitted_(Reviews(metrics, "admitted")),
      refused_(Reviews(metrics, "refused")),
      no_budget_(Reviews(metrics, "no_budget")) {}

Status MetricsGuard::Admit(const std::string& authorization) {
  const std::optional<std::string> token = BearerToken(authorization);
  if (!token) {
    refused_.Add();
    return absl::UnauthenticatedError("a bearer token is wanted");
  }
  const std::string key = ToHex(Sha256(AsBytes(*token)).view());
  const Time now = clock_();
  Status status;
  {
    const std::lock_guard lock(mutex_);
    const auto it = verdicts_.find(key);
    if (it != verdicts_.end() && now < it->second.until) {
      status = it->second.status;
      (status.ok() ? admitted_ : refused_).Add();
      return status;
    }
    const bool admitted_before = it != verdicts_.end() && it->second.status.ok();
    if (!admitted_before && !strangers_.Take(now)) {
      no_budget_.Add();
      return absl::UnavailableError("too many tokens are shown: ask again");
    }
  }
  status = Ask(*token);
  (status.ok() ? admitted_ : refused_).Add();
  // A server that was away has said nothing about the account.
  if (!absl::IsUnavailable(status)) Remember(key, status, now);
  return status;
}

Status MetricsGuard::Ask(const std::string& token) {
  // Without an audience: the API server then takes its own (TokenReviewSpec).
  const auto review =
      client_.Create("/apis/authentication.k8s.io/v1/tokenreviews", {{"spec", {{"token", token}}}});
  if (!review.ok()) return absl::UnavailableError(review.status().message());
  const json::json_pointer verdict("/status/authenticated"), user_at("/status/user");
  if (!review->contains(verdict) || (*review)[verdict] != true || !review->contains(user_at)) {
    return absl::UnauthenticatedError("the API server does not know this token");
  }
  const json& user = (*review)[user_at];
  json spec = {{"nonResourceAttributes", {{"path", "/metrics"}, {"verb", "get"}}}};
  // An authorizer may look at each of them, so all are passed on.
  for (const auto& [from, to] : {std::pair("username", "user"), std::pair("uid", "uid"),
                                 std::pair("groups", "groups"), std::pair("extra", "extra")}) {
    if (user.contains(from)) spec[to] = user[from];
  }
  const auto access = client_.Create("/apis/authorization.k8s.io/v1/subjectaccessreviews",
                                     {{"spec", std::move(spec)}});
  if (!access.ok()) return absl::UnavailableError(access.status().message());
  const json::json_pointer allowed("/status/allowed");
  if (access->contains(allowed) && (*access)[allowed] == true) return absl::OkStatus();
  return absl::PermissionDeniedError("this account may not get /metrics");
}

void MetricsGuard::Remember(const std::string& key, const Status& status, Time now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(verdicts_, [&](const auto& one) { return one.second.forget <= now; });
  if (verdicts_.size() >= kMaxVerdicts) {
    verdicts_.erase(std::min_element(verdicts_.begin(), verdicts_.end(), [](auto& a, auto& b) {
      return a.second.until < b.second.until;
    }));
  }
  const Time until = now + (status.ok() ? kTokenBelievedFor : kTokenRefusedFor);
  verdicts_[key] = {status, until, status.ok() ? now + kAdmittedFor : until};
}

}  // namespace crowdsurf::controller
