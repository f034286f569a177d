#include "operator/edge/kube/kube_client.h"

#include <absl/strings/ascii.h>
#include <httplib.h>

#include <chrono>
#include <mutex>
#include <set>
#include <utility>

#include "base/text.h"
#include "operator/core/decide/outages.h"
#include "operator/core/job/json_path.h"
#include "operator/edge/kube/kube_connections.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

const std::vector<double> kRequestBuckets = {.005, .01, .025, .05, .1, .25, .5,
                                             1,    2.5, 5,    10,  30, 60};

// Bookmarks come about once a minute; a watch that is silent for two has lost its connection.
constexpr int kWatchSilenceSeconds = 120;

// An error that comes sooner is a connection that has ended, not a server that is slow.
constexpr std::chrono::seconds kTimedOut{1};

std::string MessageOf(const std::string& body, int status) {
  const json document = json::parse(body, nullptr, false);
  if (document.is_object() && document.contains("message") && document["message"].is_string()) {
    return document["message"].get<std::string>();
  }
  return absl::StrCat("HTTP ", status, body.empty() ? "" : ": ", CutText(body, 200));
}

std::string ReasonOf(const std::string& body) {
  const json document = json::parse(body, nullptr, false);
  return document.is_object() && document.contains("reason") && document["reason"].is_string()
             ? document["reason"].get<std::string>()
             : std::string();
}

Status StatusOf(int code, const std::string& body, const std::string& what) {
  const std::string message = absl::StrCat(what, ": ", MessageOf(body, code));
  switch (code) {
    case 400:
    case 422:
      return absl::InvalidArgumentError(message);
    case 401:
      return absl::UnauthenticatedError(message);
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 409:
      return ReasonOf(body) == "AlreadyExists" ? absl::AlreadyExistsError(message)
                                               : absl::AbortedError(message);
    case 410:
      return absl::OutOfRangeError(message);
    case 429:
      return absl::ResourceExhaustedError(message);
    case 504:
      return absl::DeadlineExceededError(message);
    default:
      return absl::UnavailableError(message);
  }
}

const char* ContentType(PatchType type) {
  switch (type) {
    case PatchType::kMerge:
      return "application/merge-patch+json";
    case PatchType::kStrategicMerge:
      return "application/strategic-merge-patch+json";
    case PatchType::kApply:
      return "application/apply-patch+yaml";
  }
  return "";
}

// RFC 3986 query value.
std::string PercentEncoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ||
                       c == '_' || c == '~';
    out += plain ? std::string(1, c)
                 : absl::StrCat("%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
  }
  return out;
}

std::string PathOnly(const std::string& path) { return path.substr(0, path.find('?')); }

}  // namespace

class KubeClient::Impl {
 public:
  using Lease = KubeConnections::Lease;
  using Call = std::function<httplib::Result(httplib::ClientImpl&, const httplib::Headers&)>;

  Impl(KubeEndpoint endpoint, Options options)
      : endpoint_(std::move(endpoint)),
        options_(std::move(options)),
        host_(absl::StrCat(endpoint_.host, ":", endpoint_.port)),
        pool_(endpoint_, options_.user_agent, options_.timeout, options_.connections) {}

  StatusOr<json> Request(const char* method, const std::string& path, const Call& call) {
    const std::string what = absl::StrCat(method, " ", PathOnly(path));
    const auto asked = steady_clock::now();
    ASSIGN_OR_RETURN(Lease lease, pool_.Acquire());
    const auto begun = steady_clock::now();
    httplib::Result result = Ask(method, call, lease);
    // A connection that was idle may have ended with its server. What changes nothing is asked
    // again, and what could not be sent whole; of all else nobody knows whether it was done.
    const bool ended = !result && lease.used && steady_clock::now() - begun < kTimedOut;
    if (ended && (std::string_view(method) == "GET" || result.error() == httplib::Error::Write)) {
      lease = {};
      if (auto fresh = pool_.Connect(); fresh.ok()) {
        lease = *std::move(fresh);
        result = Ask(method, call, lease);
      }
    }
    Took(method, begun - asked, steady_clock::now() - begun);
    if (!result) {
      // A broken connection is thrown away; the next request makes a new one.
      pool_.Release(std::move(lease), /*reuse=*/false);
      return absl::UnavailableError(absl::StrCat(what, ": ", httplib::to_string(result.error())));
    }
    pool_.Release(std::move(lease), /*reuse=*/true);
    const int status = result->status;
    if (status < 200 || status > 299) return StatusOf(status, result->body, what);
    json document = json::parse(result->body, nullptr, false);
    if (document.is_discarded())
      return absl::UnavailableError(absl::StrCat(what, ": the answer is no JSON"));
    return document;
  }

  Status Watch(const std::string& path, const std::function<bool(std::string_view)>& on_bytes) {
    ASSIGN_OR_RETURN(Lease lease, pool_.Connect());
    lease.client->set_read_timeout(kWatchSilenceSeconds);
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return absl::CancelledError("stopping");
      watches_.insert(lease.client.get());
    }
    int status = 0;
    std::string refusal;
    bool wanted = true;
    const Time asked = options_.clock();
    const httplib::Result result = lease.client->Get(
        path, lease.headers,
        [&](const httplib::Response& response) {
          status = response.status;
          Remember(asked, status);
          const std::lock_guard lock(mutex_);
          return !stopped_;  // a Stop that came before the connection had nothing to cut
        },
        [&](const char* data, size_t size) {
          if (status != 200) {
            if (refusal.size() < (64 << 10)) refusal.append(data, size);
            return true;
          }
          return wanted = on_bytes(std::string_view(data, size));
        });
    bool stopped;
    {
      const std::lock_guard lock(mutex_);
      watches_.erase(lease.client.get());
      stopped = stopped_;
    }
    Count("WATCH", status);
    if (status == 0) Remember(asked, 0);
    if (stopped || !wanted) return absl::CancelledError("the watch was stopped");
    if (status != 0 && status != 200) return StatusOf(status, refusal, "WATCH " + PathOnly(path));
    if (!result) {
      return absl::UnavailableError(
          absl::StrCat("WATCH ", PathOnly(path), ": ", httplib::to_string(result.error())));
    }
    return absl::OkStatus();
  }

  void Stop() {
    pool_.Stop();
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (httplib::ClientImpl* watch : watches_) watch->stop();
  }

  const KubeEndpoint& endpoint() const { return endpoint_; }

  Duration OutageLingers() {
    const std::lock_guard lock(mutex_);
    return outages_.Lingers(options_.clock());
  }

 private:
  httplib::Result Ask(const char* method, const Call& call, Lease& lease) {
    const Time at = options_.clock();
    httplib::Result result = call(*lease.client, lease.headers);
    const int status = result ? result->status : 0;
    Count(method, status);
    Remember(at, status);
    return result;
  }

  void Count(const char* method, int status) {
    if (options_.metrics == nullptr) return;
    const std::string code = status == 0 ? "<error>" : std::to_string(status);
    options_.metrics
        ->AddCounter("rest_client_requests_total", "Requests to the API server, by answer.",
                     {{"method", method}, {"code", code}, {"host", host_}})
        .Add();
  }

  // status: 0 without an answer.
  void Remember(Time asked, int status) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;  // what is cut by us is no outage
    const bool answered = status != 0 && status < 500;
    answered ? outages_.Answered(options_.clock()) : outages_.Unanswered(asked);
  }

  void Took(const char* verb, steady_clock::duration waited, steady_clock::duration took) {
    if (options_.metrics == nullptr) return;
    const auto seconds = [](auto d) { return std::chrono::duration<double>(d).count(); };
    options_.metrics
        ->AddHistogram("rest_client_rate_limiter_duration_seconds",
                       "Time that requests waited for one of the client's connections.",
                       kRequestBuckets, {{"verb", verb}, {"host", host_}})
        .Observe(seconds(waited));
    options_.metrics
        ->AddHistogram("rest_client_request_duration_seconds",
                       "Duration of requests to the API server, without watches.", kRequestBuckets,
                       {{"verb", verb}, {"host", host_}})
        .Observe(seconds(took));
  }

  const KubeEndpoint endpoint_;
  const Options options_;
  const std::string host_;  // of the API server, as a label
  KubeConnections pool_;
  std::mutex mutex_;
  std::set<httplib::ClientImpl*> watches_;
  Outages outages_;
  bool stopped_ = false;
};

KubeClient::KubeClient(KubeEndpoint endpoint, Options options)
    : impl_(std::make_unique<Impl>(std::move(endpoint), std::move(options))) {}
KubeClient::~KubeClient() { Stop(); }

StatusOr<json> KubeClient::Get(const std::string& path) {
  return impl_->Request(
      "GET", path, [&](auto& client, const auto& headers) { return client.Get(path, headers); });
}

StatusOr<json> KubeClient::Create(const std::string& path, const json& object) {
  const std::string body = JsonText(object);  // not in the time that a connection is judged by
  return impl_->Request("POST", path, [&](auto& client, const auto& headers) {
    return client.Post(path, headers, body, "application/json");
  });
}

StatusOr<json> KubeClient::Replace(const std::string& path, const json& object) {
  const std::string body = JsonText(object);
  return impl_->Request("PUT", path, [&](auto& client, const auto& headers) {
    return client.Put(path, headers, body, "application/json");
  });
}

StatusOr<json> KubeClient::Patch(const std::string& path, PatchType type, const json& patch) {
  const std::string body = JsonText(patch);
  return impl_->Request("PATCH", path, [&](auto& client, const auto& headers) {
    return client.Patch(path, headers, body, ContentType(type));
  });
}

Status KubeClient::Delete(const std::string& path, const json& options) {
  return impl_
      ->Request("DELETE", path,
                [&](auto& client, const auto& headers) {
                  return client.Delete(path, headers, JsonText(options), "application/json");
                })
      .status();
}

StatusOr<KubeList> KubeClient::List(const std::string& path, int page) {
  KubeList list;
  const std::string base =
      absl::StrCat(path, path.find('?') == std::string::npos ? "?" : "&", "limit=", page);
  std::string next = base;
  do {
    ASSIGN_OR_RETURN(json answer, Get(next));
    if (!answer.contains("items") || !answer["items"].is_array() || !answer.contains("metadata") ||
        !answer["metadata"].is_object()) {
      return absl::UnavailableError(
          absl::StrCat("GET ", PathOnly(path), ": the answer is no list"));
    }
    for (json& item : answer["items"]) list.items.push_back(std::move(item));
    list.resource_version = TextAt(answer, "metadata.resourceVersion");
    const std::string token = TextAt(answer, "metadata.continue");
    next = token.empty() ? std::string() : base + "&continue=" + PercentEncoded(token);
  } while (!next.empty());
  return list;
}

Status KubeClient::Watch(const std::string& path,
                         const std::function<bool(std::string_view)>& on_bytes) {
  return impl_->Watch(path, on_bytes);
}

void KubeClient::Stop() { impl_->Stop(); }
Duration KubeClient::OutageLingers() const { return impl_->OutageLingers(); }
const std::string& KubeClient::default_namespace() const {
  return impl_->endpoint().default_namespace;
}

}  // namespace crowdsurf::controller
