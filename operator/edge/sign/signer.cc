#include "operator/edge/sign/signer.h"

#include <openssl/rand.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/check.h"
#include "base/edge/clock.h"
#include "operator/core/job/json_path.h"
#include "operator/edge/sign/bearer_token.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kMaxRequest = size_t{64} * 1024;  // a request is under 1 KiB
constexpr size_t kSignerThreads = 4;    // signing takes 0.2 ms; four wait for the API server
constexpr size_t kMaxTokens = 200'000;  // a job's workers and those that were
constexpr int kTokenBytes = 32;
constexpr char kNoRequest[] = "the body is not {\"csr\": PEM, \"boot\": number}";

HttpServer::Reply Json(int status, const json& body) {
  return {status, JsonText(body), "application/json"};
}
HttpServer::Reply Refusal(int status, std::string_view why) {
  return Json(status, json{{"error", why}});
}

// The signing request of a body, empty when there is none.
std::string RequestIn(const std::string& body) {
  const json request = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object() || !request.contains("csr") || !request["csr"].is_string()) return {};
  return request["csr"].get<std::string>();
}

}  // namespace

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
  signer->report_ = options.report;
  RETURN_IF_ERROR(signer->Serve(options, registry));
  return signer;
}

Status Signer::Serve(const SignerOptions& options, MetricRegistry& registry) {
  HttpServer::Options serve{.name = "signer",
                            .listen = options.listen,
                            .port = options.port,
                            .limits = {},
                            .certificate = identity_.certificate.get(),
                            .key = identity_.key.get()};
  serve.limits.pool_threads = kSignerThreads;
  serve.limits.requests = 1;  // agents ask once a day
  server_ = std::make_unique<HttpServer>(std::move(serve), registry);
  // Both ask the API server, and wait for it.
  server_->Post("/v1/sign", kMaxRequest, HttpServer::Runs::kOnPool,
                [this](const HttpServer::Request& request) { return Sign(request); });
  if (report_) {
    server_->Post("/v1/deaths", kMaxRequest, HttpServer::Runs::kOnPool,
                  [this](const HttpServer::Request& request) { return Report(request); });
  }
  RETURN_IF_ERROR(server_->Start());
  const bool v6 = options.listen.find(':') != std::string::npos && options.listen.front() != '[';
  url_ = absl::StrCat("https://", v6 ? "[" : "", options.listen, v6 ? "]:" : ":", server_->port());
  return absl::OkStatus();
}

Signer::~Signer() { Stop(); }

void Signer::Stop() {
  if (server_) server_->Stop();
}

std::string Signer::Admit(const std::string& worker) {
  uint8_t random[kTokenBytes];
  CHECK(RAND_bytes(random, sizeof random) == 1);
  std::string token = ToHex(random);
  const std::lock_guard lock(mutex_);
  // Tokens are random, so this one is any; most of so many are of workers that are gone.
  if (workers_.size() >= kMaxTokens) workers_.erase(workers_.begin());
  workers_[token] = worker;
  return token;
}

void Signer::Dismiss(const std::string& worker) {
  const std::lock_guard lock(mutex_);
  for (auto& [token, name] : workers_) {
    // The token stays known: its worker is told that it is gone, and does not try again.
    if (name == worker) name.clear();
  }
}

HttpServer::Reply Signer::Report(const HttpServer::Request& request) {
  const auto token = BearerToken(std::string(request.Header("authorization")));
  if (!token) return Refusal(401, "a bearer token is wanted");
  const Status status = report_(*token, request.body);
  if (status.ok()) return Json(202, json::object());
  // 421, Misdirected Request: the agent asks again until it meets the leader.
  const int code = absl::IsFailedPrecondition(status)  ? 421
                   : absl::IsUnauthenticated(status)   ? 401
                   : absl::IsPermissionDenied(status)  ? 403
                   : absl::IsInvalidArgument(status)   ? 400
                   : absl::IsResourceExhausted(status) ? 429
                                                       : 503;
  return Refusal(code, std::string(status.message()));
}

HttpServer::Reply Signer::Sign(const HttpServer::Request& request) {
  const auto token = BearerToken(std::string(request.Header("authorization")));
  // In a cluster the API server knows the tokens, in local mode Admit does.
  if (grant_ && token) return Grant(*token, request.body);
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
    return Refusal(401, "the bearer token is not known here");
  }
  if (worker.empty()) {
    metrics_.refused_worker.Add();
    return Refusal(403, "this worker is gone");
  }
  const std::string csr = RequestIn(request.body);
  if (csr.empty()) {
    metrics_.refused_request.Add();
    return Refusal(400, kNoRequest);
  }
  const StatusOr<std::string> chain = authority_.SignAgent(csr, worker, WallNow());
  if (!chain.ok()) {
    metrics_.refused_request.Add();
    return Refusal(400, std::string(chain.status().message()));
  }
  metrics_.granted.Add();
  return Json(200, json{{"certificate", *chain}});
}

HttpServer::Reply Signer::Grant(const std::string& token, const std::string& body) {
  const std::string csr = RequestIn(body);
  if (csr.empty()) {
    metrics_.refused_request.Add();
    return Refusal(400, kNoRequest);
  }
  const StatusOr<std::string> chain = grant_(token, csr);
  if (chain.ok()) {
    metrics_.granted.Add();
    return Json(200, json{{"certificate", *chain}});
  }
  const std::string why(chain.status().message());
  if (absl::IsUnauthenticated(chain.status())) {
    metrics_.refused_token.Add();
    return Refusal(401, why);
  }
  if (absl::IsPermissionDenied(chain.status())) {
    metrics_.refused_worker.Add();
    return Refusal(403, why);
  }
  if (absl::IsResourceExhausted(chain.status())) {
    metrics_.refused_often.Add();
    return Refusal(429, why);
  }
  metrics_.refused_request.Add();
  return Refusal(absl::IsInvalidArgument(chain.status()) ? 400 : 503, why);
}

}  // namespace crowdsurf::controller
