#include "operator/edge/serve/death_report_handler.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/digest.h"
#include "operator/edge/sign/bearer_token.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

// An agent looks twice a second and names each worker every 5 s: two that it lost half a second
// apart come in two reports for ever, so a longer gap would never let the second one through.
constexpr Duration kGap = Milliseconds(250);
constexpr size_t kMaxName = 253;  // of a pod: a DNS subdomain

Counter& Requests(MetricRegistry& metrics, const char* result) {
  return metrics.AddCounter("crowdsurf_operator_death_report_requests_total",
                            "Requests that report lost workers, by verdict.", {{"result", result}});
}

// Empty: the body is no report.
std::vector<std::string> NamesIn(const std::string& body) {
  const json report = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object() || !report.contains("dead") || !report["dead"].is_array()) return {};
  const json& dead = report["dead"];
  if (dead.size() > DeathReportHandler::kMaxNames) return {};
  std::vector<std::string> names;
  for (const json& name : dead) {
    if (!name.is_string() || name.get_ref<const std::string&>().size() > kMaxName) return {};
    names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace

DeathReportHandler::DeathReportHandler(Ports ports, MetricRegistry& metrics)
    : ports_(std::move(ports)),
      taken_(Requests(metrics, "taken")),
      refused_(Requests(metrics, "refused")) {}

Status DeathReportHandler::Take(const std::string& token, const std::string& body) {
  Status status = Judge(token, body);
  (status.ok() ? taken_ : refused_).Add();
  return status;
}

Status DeathReportHandler::Judge(const std::string& token, const std::string& body) {
  // The cheap questions first: a review costs a request to the API server.
  if (!ports_.leading()) return absl::FailedPreconditionError("another replica leads: ask again");
  std::vector<std::string> dead = NamesIn(body);
  if (dead.empty()) {
    return absl::InvalidArgumentError("the body is not {\"dead\": [1 to 64 names of workers]}");
  }
  ASSIGN_OR_RETURN(TokenPod pod, Who(token));
  if (!ports_.post({std::move(pod.uid), std::move(pod.space), std::move(dead)})) {
    return absl::UnavailableError("too many reports are waiting");
  }
  return absl::OkStatus();
}

StatusOr<TokenPod> DeathReportHandler::Who(const std::string& token) {
  // Only a digest is kept, so that no dump of the memory has tokens.
  const std::string key = ToHex(Sha256(AsBytes(token)).view());
  const Time now = ports_.clock();
  {
    const std::lock_guard lock(mutex_);
    const auto it = known_.find(key);
    if (it != known_.end() && now < it->second.until) {
      Known& known = it->second;
      if (!known.pod.ok()) return known.pod;
      if (now - known.reported < kGap)
        return absl::ResourceExhaustedError("four times a second at most");
      known.reported = now;
      return known.pod;
    }
  }
  StatusOr<TokenPod> pod = ports_.review(token);
  // A server that was away has said nothing about the token.
  if (!absl::IsUnavailable(pod.status())) Remember(key, pod, now);
  return pod;
}

void DeathReportHandler::Remember(const std::string& key, const StatusOr<TokenPod>& pod, Time now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [&](const auto& one) { return one.second.until <= now; });
  if (known_.size() >= kMaxTokens) {
    known_.erase(std::min_element(known_.begin(), known_.end(), [](auto& a, auto& b) {
      return a.second.until < b.second.until;
    }));
  }
  known_.insert_or_assign(key,
                          Known{pod, now + (pod.ok() ? kTokenBelievedFor : kTokenRefusedFor), now});
}

}  // namespace crowdsurf::controller
