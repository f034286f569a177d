#include "operator/edge/signer.h"

#include <httplib.h>
#include <openssl/rand.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/check.h"
#include "base/edge/clock.h"
#include "operator/core/json_path.h"
#include "operator/edge/bearer_token.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kMostRequest = 64 * 1024;  // a request is under 1 KiB
constexpr int kClientPatience_s = 5;        // with a client that sends slowly
constexpr int kSignerThreads = 4;           // signing takes 0.2 ms; four wait out slow clients
constexpr size_t kMostTokens = 200'000;     // a job's workers and those that were
constexpr int kTokenBytes = 32;
constexpr char kNoRequest[] = "the body is not {\"csr\": PEM, \"boot\": number}";

std::string Refusal(std::string_view why) { return JsonText({{"error", why}}); }

// The signing request of a body, empty when there is none.
std::string RequestIn(const std::string& body) {
  const json request = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object() || !request.contains("csr") || !request["csr"].is_string()) return {};
  return request["csr"].get<std::string>();
}

Counter& Refused(MetricRegistry& registry, const char* reason) {
  return registry.AddCounter("crowdsurf_signer_refused_total",
                             "Signing requests refused, by reason.", {{"reason", reason}});
}

}  // namespace

SignerMetrics::SignerMetrics(MetricRegistry& registry)
    : granted(registry.AddCounter("crowdsurf_signer_granted_total", "Certificates signed.")),
      refused_token(Refused(registry, "token")),
      refused_worker(Refused(registry, "worker")),
      refused_request(Refused(registry, "request")) {}

Signer::Signer(const CertificateAuthority& authority, MetricRegistry& registry)
    : authority_(authority), metrics_(registry) {}

StatusOr<std::unique_ptr<Signer>> Signer::Start(const CertificateAuthority& authority,
                                                const SignerOptions& options, WallTime now,
                                                MetricRegistry& registry) {
  std::unique_ptr<Signer> signer(new Signer(authority, registry));
  signer->grant_ = options.grant;
  std::vector<std::string> hosts = {options.listen, "localhost"};
  hosts.insert(hosts.end(), options.hosts.begin(), options.hosts.end());
  ASSIGN_OR_RETURN(signer->identity_, authority.MakeServer(hosts, now));
  signer->server_ = std::make_unique<httplib::SSLServer>(signer->identity_.certificate.get(),
                                                         signer->identity_.key.get());
  httplib::SSLServer& server = *signer->server_;
  if (!server.is_valid()) return absl::InternalError("the signer's TLS context is not valid");
  // The library's default, SO_REUSEPORT, would let two signers share a port without a word.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.new_task_queue = [] { return new httplib::ThreadPool(kSignerThreads); };
  server.set_payload_max_length(kMostRequest);
  server.set_read_timeout(kClientPatience_s);
  server.set_write_timeout(kClientPatience_s);
  server.set_keep_alive_max_count(1);  // agents ask once a day
  Signer* self = signer.get();
  server.Post("/v1/sign", [self](const httplib::Request& request, httplib::Response& response) {
    const Answer answer = self->Sign(request.get_header_value("Authorization"), request.body);
    response.status = answer.status;
    response.set_content(answer.body, "application/json");
  });
  if (options.report) {
    signer->report_ = options.report;
    server.Post("/v1/deaths", [self](const httplib::Request& request, httplib::Response& response) {
      const Answer answer = self->Report(request.get_header_value("Authorization"), request.body);
      response.status = answer.status;
      response.set_content(answer.body, "application/json");
    });
  }
  int port = options.port;
  if (port == 0) {
    port = server.bind_to_any_port(options.listen);
  } else if (!server.bind_to_port(options.listen, port)) {
    port = -1;
  }
  if (port < 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", options.listen, ":",
                                                      options.port, ": ", std::strerror(errno)));
  }
  signer->url_ = absl::StrCat("https://", options.listen, ":", port);
  signer->thread_ = std::thread([&server] { server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::yield();  // else an early Stop would be lost
  return signer;
}

Signer::~Signer() { Stop(); }

void Signer::Stop() {
  if (!thread_.joinable()) return;
  server_->stop();
  thread_.join();
}

std::string Signer::Admit(const std::string& worker) {
  uint8_t random[kTokenBytes];
  CHECK(RAND_bytes(random, sizeof random) == 1);
  const std::string token = ToHex(random);
  const std::lock_guard lock(mutex_);
  if (workers_.size() >= kMostTokens) workers_.erase(workers_.begin());
  workers_[token] = worker;
  return token;
}

void Signer::Dismiss(const std::string& worker) {
  const std::lock_guard lock(mutex_);
  for (auto& [token, name] : workers_) {
    if (name == worker) name.clear();
  }
}

Signer::Answer Signer::Report(const std::string& authorization, const std::string& body) {
  const std::optional<std::string> token = BearerToken(authorization);
  if (!token) return {401, Refusal("a bearer token is wanted")};
  const Status status = report_(*token, body);
  if (status.ok()) return {202, "{}"};
  const int code = absl::IsFailedPrecondition(status)  ? 421
                   : absl::IsUnauthenticated(status)   ? 401
                   : absl::IsPermissionDenied(status)  ? 403
                   : absl::IsInvalidArgument(status)   ? 400
                   : absl::IsResourceExhausted(status) ? 429
                                                       : 503;
  return {code, Refusal(std::string(status.message()))};
}

Signer::Answer Signer::Sign(const std::string& authorization, const std::string& body) {
  const std::optional<std::string> token = BearerToken(authorization);
  if (grant_ && token) return Grant(*token, body);
  std::string worker;
  bool known = false;
  if (token) {
    const std::lock_guard lock(mutex_);
    const auto it = workers_.find(*token);
    known = it != workers_.end();
    if (known) worker = it->second;
  }
  if (!known) {
    metrics_.refused_token.Add();
    return {401, Refusal("the bearer token is not known here")};
  }
  if (worker.empty()) {
    metrics_.refused_worker.Add();
    return {403, Refusal("this worker is gone")};
  }
  const std::string csr = RequestIn(body);
  if (csr.empty()) {
    metrics_.refused_request.Add();
    return {400, Refusal(kNoRequest)};
  }
  const StatusOr<std::string> chain = authority_.SignAgent(csr, worker, WallNow());
  if (!chain.ok()) {
    metrics_.refused_request.Add();
    return {400, Refusal(std::string(chain.status().message()))};
  }
  metrics_.granted.Add();
  return {200, JsonText({{"certificate", *chain}})};
}

Signer::Answer Signer::Grant(const std::string& token, const std::string& body) {
  const std::string csr = RequestIn(body);
  if (csr.empty()) {
    metrics_.refused_request.Add();
    return {400, Refusal(kNoRequest)};
  }
  const StatusOr<std::string> chain = grant_(token, csr);
  if (chain.ok()) {
    metrics_.granted.Add();
    return {200, JsonText({{"certificate", *chain}})};
  }
  const std::string why(chain.status().message());
  if (absl::IsUnauthenticated(chain.status())) {
    metrics_.refused_token.Add();
    return {401, Refusal(why)};
  }
  if (absl::IsPermissionDenied(chain.status())) {
    metrics_.refused_worker.Add();
    return {403, Refusal(why)};
  }
  metrics_.refused_request.Add();
  return {absl::IsInvalidArgument(chain.status()) ? 400 : 503, Refusal(why)};
}

}  // namespace crowdsurf::controller
