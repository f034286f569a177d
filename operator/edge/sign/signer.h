// Signer: the HTTPS server that gives agents their certificates, POST /v1/sign
// (docs/local-mode.md), and hands their reports of lost workers on, POST /v1/deaths.
//
// A bearer token names the worker; the request's own names are ignored. In a cluster somebody else
// knows the tokens (SignerOptions::grant). In local mode tokens are made here, 256
// random bits each, one a worker, and forgotten when the worker is gone: then its requests are 403
// no more than anybody's are 401. Thread-safe; its server runs on threads of its own until Stop or
// destruction. Bounds: 64 KiB a request, and HttpServer's, whose pool has four threads here:
// clients of one address have two of them at most, so whoever floods it with tokens starves nobody
// else.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/edge/http_server.h"
#include "base/metrics.h"
#include "base/status.h"
#include "operator/edge/sign/certificate_authority.h"

namespace crowdsurf::controller {

struct SignerMetrics {
  explicit SignerMetrics(MetricRegistry& r) : registry(r) {}

  MetricRegistry& registry;
  Counter& granted = registry.AddCounter("crowdsurf_signer_granted_total", "Certificates signed.");
  Counter& refused_token = Refused("token");
  Counter& refused_worker = Refused("worker");
  Counter& refused_request = Refused("request");
  Counter& refused_often = Refused("too_often");

 private:
  Counter& Refused(const char* reason) {
    return registry.AddCounter("crowdsurf_signer_refused_total",
                               "Signing requests refused, by reason.", {{"reason", reason}});
  }
};

struct SignerOptions {
  std::string listen = "127.0.0.1";
  int port = 0;                         // 0: any free one
  std::vector<std::string> hosts = {};  // further names by which agents reach it
  // Given, it decides instead of Admit and Dismiss: the chain for a bearer token and a request, on
  // the server's pool. Errors: Unauthenticated 401, PermissionDenied 403, InvalidArgument 400,
  // ResourceExhausted 429, others 503.
  std::function<StatusOr<std::string>(const std::string& token, const std::string& csr)> grant = {};
  // Given, POST /v1/deaths is served, too (death_report_handler.h): 202, or its errors.
  std::function<Status(const std::string& token, const std::string& body)> report = {};
};

class Signer {
 public:
  // Errors: FailedPrecondition when the port is taken (names it); Internal.
  static StatusOr<std::unique_ptr<Signer>> Start(const CertificateAuthority& authority,
                                                 const SignerOptions& options, WallTime now,
                                                 MetricRegistry& registry);
  ~Signer();
  Signer(const Signer&) = delete;
  Signer& operator=(const Signer&) = delete;

  const std::string& url() const { return url_; }  // https://127.0.0.1:PORT
  int port() const { return server_->port(); }

  // A token by which `worker` may have certificates from now on.
  std::string Admit(const std::string& worker);
  // The worker is gone: its token is known, and refused (403).
  void Dismiss(const std::string& worker);

  void Stop();

 private:
  Signer(const CertificateAuthority& authority, MetricRegistry& registry);
  Status Serve(const SignerOptions& options, MetricRegistry& registry);
  HttpServer::Reply Sign(const HttpServer::Request& request);
  HttpServer::Reply Report(const HttpServer::Request& request);
  HttpServer::Reply Grant(const std::string& token, const std::string& body);

  const CertificateAuthority& authority_;
  SignerMetrics metrics_;
  decltype(SignerOptions::grant) grant_;
  decltype(SignerOptions::report) report_;
  ServerIdentity identity_;
  std::string url_;
  std::mutex mutex_;
  std::map<std::string, std::string> workers_;  // token -> worker; empty: dismissed
  std::unique_ptr<HttpServer> server_;          // it ends first: its handlers use the rest
};

}  // namespace crowdsurf::controller
