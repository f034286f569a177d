#include "operator/edge/kube/kube_client.h"

#include <absl/cleanup/cleanup.h>
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/rng.h"
#include "operator/core/decide/outages.h"
#include "operator/core/job/json_path.h"
#include "operator/core/observe/api_errors.h"
#include "operator/core/observe/list_scanner.h"
#include "operator/edge/kube/kube_connections.h"
#include "operator/edge/kube/kube_requests.h"
#include "operator/edge/kube/request_metrics.h"
#include "operator/edge/reconcile/controller_metrics.h"
#include "operator/edge/reconcile/no_escape.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;
using OnBytes = std::function<bool(std::string_view)>;

// An error that comes sooner is a connection that has ended, not a server that is slow.
constexpr std::chrono::seconds kTimedOut{1};
// Requests that wait for the same instant come back one by one within it.
constexpr Duration kSpread = Milliseconds(200);
constexpr size_t kMaxRefusal = 64 << 10;

std::string PathOnly(const std::string& path) { return path.substr(0, path.find('?')); }

std::chrono::nanoseconds StdTime(Duration d) { return std::chrono::nanoseconds(d.nanoseconds()); }
Duration OurTime(std::chrono::nanoseconds d) { return Nanoseconds(d.count()); }

bool IsSuccess(int status) { return status >= 200 && status <= 299; }

}  // namespace

class KubeClient::Impl {
 public:
  using Lease = KubeConnections::Lease;

  Impl(KubeEndpoint endpoint, Options options)
      : endpoint_(std::move(endpoint)),
        options_(std::move(options)),
        metrics_(options_.metrics, absl::StrCat(endpoint_.host, ":", endpoint_.port)),
        pool_(endpoint_, options_.user_agent, options_.timeout, options_.connections) {}

  // The body of the answer, which goes to on_body instead where that is given.
  StatusOr<std::string> Request(httplib::Request request, const OnBytes& on_body = {}) {
    const std::string what = absl::StrCat(request.method, " ", PathOnly(request.path));
    const std::string kind = KindOfRequest(request.method, request.path);
    const auto until = steady_clock::now() + StdTime(options_.timeout);
    while (true) {
      RETURN_IF_ERROR(AwaitLeave(kind, what, until));
      ASSIGN_OR_RETURN(Answer answer, Exchange(request, on_body, until));
      if (!answer.status) {
        return absl::UnavailableError(absl::StrCat(
            what, ": ", answer.over ? "not answered in time" : httplib::to_string(answer.error)));
      }
      if (IsSuccess(answer.status) && answer.whole) return std::move(answer.body);
      if (IsSuccess(answer.status)) {
        return absl::UnavailableError(absl::StrCat(what, ": the answer ended before its end"));
      }
      const Status refusal = ApiError(answer.status, answer.body, what);
      const auto pause = PauseAskedFor(answer.status, answer.retry_after);
      if (!pause) return refusal;
      Hold(kind, *pause);
      // The pause would outlast the request, so its caller gets the refusal itself.
      if (steady_clock::now() + StdTime(*pause) >= until) return refusal;
      metrics_.Retried(request.method, answer.status);
    }
  }

  StatusOr<json> Document(httplib::Request request) {
    return NoEscape(exceptions(), [&]() -> StatusOr<json> {
      const std::string what = absl::StrCat(request.method, " ", PathOnly(request.path));
      ASSIGN_OR_RETURN(const std::string body, Request(std::move(request)));
      json document = json::parse(body, nullptr, false);
      if (!document.is_discarded()) return document;
      return absl::UnavailableError(absl::StrCat(what, ": the answer is no JSON"));
    });
  }

  // One page; the list without its items.
  StatusOr<json> Page(const std::string& path, const std::function<void(const json&)>& on_item) {
    const Status no_list =
        absl::UnavailableError(absl::StrCat("GET ", PathOnly(path), ": the answer is no list"));
    bool garbled = false;
    ListScanner scanner([&](std::string_view text) {
      const json item = json::parse(text, nullptr, false);
      garbled = item.is_discarded();
      if (!garbled) on_item(item);
      return !garbled;
    });
    const auto read = Request(GetRequest(path), [&](std::string_view bytes) {
      // False ends the connection: nothing more can be read from a broken list.
      garbled = garbled || !scanner.Feed(bytes);
      return !garbled;
    });
    if (garbled) return no_list;
    RETURN_IF_ERROR(read.status());
    json rest = json::parse(scanner.rest(), nullptr, false);
    const json* items = Member(&rest, "items");
    const json* metadata = Member(&rest, "metadata");
    if (items == nullptr || !items->is_array() || metadata == nullptr || !metadata->is_object()) {
      return no_list;
    }
    return rest;
  }

  Status Watch(const std::string& path, const OnBytes& on_bytes, Duration silence) {
    const std::string what = "WATCH " + PathOnly(path), kind = KindOfRequest("WATCH", path);
    RETURN_IF_ERROR(AwaitLeave(kind, what, steady_clock::now() + StdTime(options_.timeout)));
    // Not of the pool, which a few watches would use up for good.
    ASSIGN_OR_RETURN(Lease lease, pool_.Connect());
    lease.client->set_read_timeout(static_cast<time_t>(silence.seconds()));
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return absl::CancelledError("stopping");
      watches_.insert(lease.line);
    }
    const absl::Cleanup forget = [&] {
      const std::lock_guard lock(mutex_);
      watches_.erase(lease.line);
    };
    int status = 0;
    std::string refusal, retry_after;
    bool wanted = true;
    const Time asked = options_.clock();
    // The time-out is for the first byte. Later `silence` bounds the gaps between events.
    SocketDeadlines::Guard until_it_begins(deadlines_, lease.line,
                                           steady_clock::now() + StdTime(options_.timeout));
    const httplib::Result result = lease.client->Get(
        lease.path + path, lease.headers,
        [&](const httplib::Response& response) {
          until_it_begins.End();
          status = response.status;
          retry_after = response.get_header_value("Retry-After");
          Remember(asked, status);
          // Here and not at its end, as client-go counts it: a watch lasts.
          metrics_.Answered("WATCH", status);
          const std::lock_guard lock(mutex_);
          return !stopped_;  // a Stop that came before the connection had nothing to cut
        },
        [&](const char* data, size_t size) {
          if (status != 200) {
            if (refusal.size() < kMaxRefusal) refusal.append(data, size);
            return true;
          }
          return wanted = on_bytes(std::string_view(data, size));
        });
    until_it_begins.End();
    if (status == 0) {
      metrics_.Answered("WATCH", 0);
      Remember(asked, 0);
    }
    if (stopped() || !wanted) return absl::CancelledError("the watch was stopped");
    if (status != 0 && status != 200) {
      if (const auto pause = PauseAskedFor(status, retry_after)) Hold(kind, *pause);
      return ApiError(status, refusal, what);
    }
    if (!result) {
      return absl::UnavailableError(absl::StrCat(what, ": ", httplib::to_string(result.error())));
    }
    return absl::OkStatus();
  }

  void Stop() {
    pool_.Stop();
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    // A watch waits for its socket, and only the socket's end wakes it.
    for (const auto& watch : watches_) watch->Cut();
    wake_.notify_all();
  }

  const KubeEndpoint& endpoint() const { return endpoint_; }
  // Null without a registry.
  Counter* exceptions() {
    return options_.metrics == nullptr ? nullptr : &ExceptionsOf(*options_.metrics, "client");
  }

  bool away() {
    const std::lock_guard lock(mutex_);
    return outages_.away();
  }
  Duration OutageLingers() {
    const std::lock_guard lock(mutex_);
    return outages_.Lingers(options_.clock());
  }

 private:
  struct Answer {
    int status = 0;  // 0: there was none
    bool whole = false;
    bool over = false;  // its time was
    httplib::Error error = httplib::Error::Success;
    std::string body, retry_after;
  };

  // On a connection of the pool. Errors: there was none.
  StatusOr<Answer> Exchange(httplib::Request& request, const OnBytes& on_body,
                            steady_clock::time_point until) {
    const auto asked = steady_clock::now();
    ASSIGN_OR_RETURN(Lease lease, pool_.Acquire(until));
    bool reuse = false;
    const absl::Cleanup give_back = [&] {
      reuse ? pool_.Release(std::move(lease)) : pool_.Discard();
    };
    const auto begun = steady_clock::now();
    Answer answer = ExchangeOn(lease, request, on_body, until);
    // A connection that was idle may have ended with its server. What changes nothing is asked
    // again, and what could not be sent whole; of all else nobody knows whether it was done.
    const bool ended = !answer.whole && answer.status == 0 && lease.used &&
                       steady_clock::now() - begun < kTimedOut;
    if (ended && (request.method == "GET" || answer.error == httplib::Error::Write)) {
      if (auto fresh = pool_.Connect(); fresh.ok()) {
        lease = *std::move(fresh);
        answer = ExchangeOn(lease, request, on_body, until);
      }
    }
    metrics_.Took(request.method, OurTime(begun - asked), OurTime(steady_clock::now() - begun));
    reuse = answer.whole;  // a broken connection is thrown away; the next request makes a new one
    return answer;
  }

  Answer ExchangeOn(Lease& lease, httplib::Request& request, const OnBytes& on_body,
                    steady_clock::time_point until) {
    Answer answer;
    // In place: a body of megabytes is not copied in the time that a connection is judged by.
    const httplib::Headers asked = request.headers;
    const std::string path = request.path;
    const absl::Cleanup restore = [&] {
      request.headers = asked;
      request.path = path;
    };
    request.path.insert(0, lease.path);
    for (const auto& [name, value] : lease.headers) request.headers.emplace(name, value);
    request.response_handler = [&](const httplib::Response& response) {
      answer.status = response.status;
      answer.retry_after = response.get_header_value("Retry-After");
      return true;
    };
    request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      if (on_body && IsSuccess(answer.status)) return on_body(std::string_view(data, size));
      // False ends the connection: a server of the wrong kind must not fill our memory.
      if (answer.body.size() + size > kMaxApiAnswer) return false;
      answer.body.append(data, size);
      return true;
    };
    const Time at = options_.clock();
    const SocketDeadlines::Guard guard(deadlines_, lease.line, until);
    httplib::Response response;
    answer.whole = lease.client->send(request, response, answer.error);
    if (answer.whole) answer.status = response.status;
    answer.over = guard.over();
    metrics_.Answered(request.method, answer.status);
    Remember(at, answer.status);
    return answer;
  }

  // What the server asked for holds for all requests of that kind.
  void Hold(const std::string& kind, Duration pause) {
    const auto now = steady_clock::now();
    const std::lock_guard lock(mutex_);
    std::erase_if(held_until_, [&](const auto& held) { return held.second <= now; });
    steady_clock::time_point& until = held_until_[kind];
    until = std::max(until, now + StdTime(pause));
  }

  // Until a hold is over. Unavailable: that is later than `until`.
  Status AwaitLeave(const std::string& kind, const std::string& what,
                    steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      const auto held = held_until_.find(kind);
      if (held == held_until_.end() || held->second <= steady_clock::now()) break;
      const auto at = held->second + StdTime(kSpread * spread_.UniformDouble());
      if (at > until) {
        return absl::UnavailableError(
            absl::StrCat(what, ": the API server is busy and asked to wait"));
      }
      wake_.wait_until(lock, at, [this] { return stopped_; });
    }
    return stopped_ ? absl::CancelledError("the client is stopping") : absl::OkStatus();
  }

  // status: 0 without an answer.
  void Remember(Time asked, int status) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;  // what is cut by us is no outage
    // A load balancer answers 5xx for a server that is away.
    const bool answered = status != 0 && status < 500;
    answered ? outages_.Answered(options_.clock()) : outages_.Unanswered(asked);
  }

  bool stopped() {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

  const KubeEndpoint endpoint_;
  const Options options_;
  const RequestMetrics metrics_;
  SocketDeadlines deadlines_;
  KubeConnections pool_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<std::shared_ptr<SocketLine>> watches_;
  Outages outages_;
  std::map<std::string, steady_clock::time_point> held_until_;  // by kind of request
  Rng spread_{1};
  bool stopped_ = false;
};

KubeClient::KubeClient(KubeEndpoint endpoint, Options options)
    : impl_(std::make_unique<Impl>(std::move(endpoint), std::move(options))) {}
KubeClient::~KubeClient() { Stop(); }

StatusOr<json> KubeClient::Get(const std::string& path) {
  return impl_->Document(GetRequest(path));
}

StatusOr<json> KubeClient::Create(const std::string& path, const json& object) {
  return impl_->Document(JsonRequest("POST", path, object));
}

StatusOr<json> KubeClient::Replace(const std::string& path, const json& object) {
  return impl_->Document(JsonRequest("PUT", path, object));
}

StatusOr<json> KubeClient::Patch(const std::string& path, PatchType type, const json& patch) {
  return impl_->Document(JsonRequest("PATCH", path, patch, ContentType(type)));
}

Status KubeClient::Delete(const std::string& path, const json& options) {
  return impl_->Document(JsonRequest("DELETE", path, options)).status();
}

StatusOr<std::string> KubeClient::List(const std::string& path,
                                       const std::function<void(const json&)>& on_item, int page) {
  return NoEscape(impl_->exceptions(), [&]() -> StatusOr<std::string> {
    const std::string base =
        absl::StrCat(path, path.find('?') == std::string::npos ? "?" : "&", "limit=", page);
    std::string version;
    for (std::string next = base; !next.empty();) {
      ASSIGN_OR_RETURN(const json rest, impl_->Page(next, on_item));
      // All pages show the list as it was at the first, so the last one's version is that of all.
      version = TextAt(rest, "metadata.resourceVersion");
      const std::string token = TextAt(rest, "metadata.continue");
      next = token.empty() ? std::string() : base + "&continue=" + PercentEncoded(token);
    }
    return version;
  });
}

StatusOr<KubeList> KubeClient::List(const std::string& path, int page) {
  KubeList list;
  ASSIGN_OR_RETURN(list.resource_version,
                   List(
                       path, [&](const json& item) { list.items.push_back(item); }, page));
  return list;
}

Status KubeClient::Watch(const std::string& path, const OnBytes& on_bytes, Duration silence) {
  return NoEscape(impl_->exceptions(), [&] { return impl_->Watch(path, on_bytes, silence); });
}

void KubeClient::Stop() { impl_->Stop(); }
bool KubeClient::away() const { return impl_->away(); }
Duration KubeClient::OutageLingers() const { return impl_->OutageLingers(); }
const std::string& KubeClient::default_namespace() const {
  return impl_->endpoint().default_namespace;
}

}  // namespace crowdsurf::controller
