#include "coordinator-free-dht/edge/certificate_keeper.h"

#include <absl/strings/strip.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/backoff.h"
#include "base/edge/files.h"
#include "base/edge/host_loop.h"
#include "base/endpoint.h"

namespace crowdsurf::dht {
namespace {

// A signer that restarts is back in seconds; thousands of agents must not all ask in one of them.
constexpr Duration kFirstWord = Seconds(2);  // of silence are a start that somebody waits for
constexpr Backoff kRetry{Milliseconds(100), Seconds(30), 2.0, 0.5};
constexpr size_t kMaxCa = 1 << 20;  // two CAs are 1.3 KiB

std::string Trimmed(std::string text) {
  // Token files written by hand end in a line end, which no HTTP header may hold.
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

Status FromHttp(int code, const std::string& body) {
  // Cut: the answer may be a page of a proxy between, of any length.
  const std::string text = absl::StrCat("signer answered ", code, ": ", body.substr(0, 200));
  // These three say that asking again gives the same answer; every other code may pass.
  if (code == 400) return absl::InvalidArgumentError(text);
  if (code == 401) return absl::UnauthenticatedError(text);
  if (code == 403) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

bool Refused(const Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnauthenticated(status) ||
         absl::IsPermissionDenied(status);
}

}  // namespace

Status RequestCertificate(HttpClient& client, const Identity& identity,
                          const SignerOptions& options) {
  ASSIGN_OR_RETURN(const std::string token, ReadFile(identity.directory() / "token", 64 << 10));
  ASSIGN_OR_RETURN(const std::string csr, identity.CertificateRequest(options.job, options.worker));
  const std::string address(absl::StripPrefix(options.url, "https://"));
  if (address == options.url || !ParseEndpoint(address)) {
    return absl::InvalidArgumentError(absl::StrCat("signer: not https://host:port: ", options.url));
  }
  ASSIGN_OR_RETURN(const std::string ca, ReadFile(identity.directory() / "ca.pem", kMaxCa));
  // A token is a secret: it goes to a server of the job's own CA only.
  const auto trust = HttpTrust::FromPem(ca);
  if (!trust.ok())
    return absl::UnavailableError("ca.pem: " + std::string(trust.status().message()));
  const nlohmann::json body = {{"csr", csr}, {"boot", identity.boot()}};
  HttpClient::Request request{.address = address, .method = "POST", .target = "/v1/sign"};
  request.headers = {{"Authorization", "Bearer " + Trimmed(token)},
                     {"Content-Type", "application/json"}};
  request.body = body.dump();
  request.deadline = options.timeout;
  request.trust = *trust;
  const auto answer = client.Fetch(std::move(request));
  if (!answer.ok()) {
    return absl::UnavailableError(absl::StrCat("signer ", answer.status().message()));
  }
  if (answer->status != 200) return FromHttp(answer->status, answer->body);
  const auto json = nlohmann::json::parse(answer->body, nullptr, false);
  // It is as if nobody had answered: another replica of the signer may do better.
  if (!json.is_object() || !json.contains("certificate") || !json["certificate"].is_string()) {
    return absl::UnavailableError("signer: its answer holds no certificate");
  }
  return identity.InstallCertificate(json["certificate"].get<std::string>());
}

CertificateKeeper::CertificateKeeper(const Identity& identity, SignerOptions options, uint64_t seed,
                                     MetricRegistry& metrics, Logger logger)
    : identity_(identity),
      options_(std::move(options)),
      rng_(seed),
      logger_(logger.For("certificate")),
      renewed_(metrics.AddCounter("crowdsurf_identity_certificates_total",
                                  "Certificates received from the signer.")),
      failed_(metrics.AddCounter("crowdsurf_identity_certificate_failures_total",
                                 "Requests to the signer that gave no certificate.")) {}

CertificateKeeper::~CertificateKeeper() { Stop(); }

Status CertificateKeeper::WaitForFirst(Duration patience) {
  const WallTime since = HostLoop::Wall();
  const WallTime until = since + patience;
  Duration say_after = kFirstWord;  // then at twice the time, and so on
  for (int attempt = 0;; ++attempt) {
    const auto renew_at = identity_.RenewAt();
    // The old certificate is still good: an agent restarts while the signer is away.
    if (renew_at.ok() && *renew_at > HostLoop::Wall()) return absl::OkStatus();
    Status status = RequestCertificate(client_, identity_, options_);
    if (status.ok()) {
      renewed_.Add();
      return status;
    }
    failed_.Add();
    // One that is past two thirds still serves while the signer is away.
    if (renew_at.ok() && !Refused(status)) return absl::OkStatus();
    const WallTime next = HostLoop::Wall() + kRetry.Delay(attempt, rng_);
    const Duration waited = HostLoop::Wall() - since;
    if (waited >= say_after || Refused(status) || next >= until) {
      say_after = waited * 2.0;
      logger_.Warning("no certificate: the signer is not reached, or refuses",
                      {{"seconds", waited.seconds()}, {"reason", std::string(status.message())}});
    }
    if (Refused(status) || next >= until || !SleepUntil(next)) return status;
  }
}

void CertificateKeeper::Start() {
  thread_ = std::thread([this] { Run(); });
}

void CertificateKeeper::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  client_.Stop();
  if (thread_.joinable()) thread_.join();
}

bool CertificateKeeper::SleepUntil(WallTime when) {
  const auto until = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(when.nanoseconds())));
  std::unique_lock lock(mutex_);
  return !wake_.wait_until(lock, until, [this] { return stopping_; });
}

void CertificateKeeper::Run() {
  int failures = 0;
  while (true) {
    const auto renew_at = identity_.RenewAt();
    WallTime next = renew_at.value_or(HostLoop::Wall());
    // After a failure, or should a signer give certificates that are born old: never in a loop.
    const WallTime soonest = HostLoop::Wall() + kRetry.Delay(failures, rng_);
    if (next < soonest) next = soonest;
    if (!SleepUntil(next)) return;
    const Status status = RequestCertificate(client_, identity_, options_);
    if (status.ok()) {
      failures = 0;
      renewed_.Add();
      logger_.Info("certificate renewed");
    } else {
      ++failures;
      failed_.Add();
      logger_.Warning("certificate not renewed",
                      {{"attempt", failures}, {"reason", std::string(status.message())}});
    }
  }
}

}  // namespace crowdsurf::dht
