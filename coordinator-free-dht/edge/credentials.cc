#include "coordinator-free-dht/edge/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/edge/files.h"
#include "coordinator-free-dht/edge/certificate.h"

namespace crowdsurf::dht {
namespace {

namespace tls = grpc::experimental;

// How often the files are looked at: certificates live a day.
constexpr unsigned kWatchSeconds = 10;

// gRPC may judge a last connection when the transport, and whoever counts for it, is gone.
class Refusals {
 public:
  explicit Refusals(Counter& counter) : counter_(&counter) {}
  void Add() {
    const std::lock_guard lock(mutex_);
    if (counter_ != nullptr) counter_->Add();
  }
  void End() {
    const std::lock_guard lock(mutex_);
    counter_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Counter* counter_;
};

class JobVerifier : public tls::ExternalCertificateVerifier {
 public:
  JobVerifier(std::filesystem::path ca, std::string job, std::shared_ptr<Refusals> refused)
      : ca_(std::move(ca)), job_(std::move(job)), refused_(std::move(refused)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* verdict) override {
    const auto leaf = request->peer_cert();
    const auto rest = request->peer_cert_full_chain();
    const Status status =
        Judge(ChainWithLeaf({leaf.data(), leaf.size()}, {rest.data(), rest.size()}));
    if (!status.ok()) {
      refused_->Add();
      *verdict = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, std::string(status.message()));
    }
    return true;  // decided at once
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  Status Judge(const std::string& chain) const {
    ASSIGN_OR_RETURN(const std::string ca, ReadFile(ca_));
    return VerifyPeerCertificate(chain, ca, job_);
  }
  const std::filesystem::path ca_;
  const std::string job_;
  const std::shared_ptr<Refusals> refused_;
};

// Read by gRPC when its TLS is first used in the process.
void ForbidTls12() { ::setenv("GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES128-GCM-SHA256", 0); }

}  // namespace

StatusOr<PeerCredentials> MakePeerCredentials(const Identity& identity, const std::string& job,
                                              Counter& refused) {
  RETURN_IF_ERROR(identity.RenewAt().status());
  ForbidTls12();
  const std::filesystem::path& dir = identity.directory();
  const auto files = std::make_shared<tls::FileWatcherCertificateProvider>(
      (dir / "key.pem").string(), (dir / "cert.pem").string(), (dir / "ca.pem").string(),
      kWatchSeconds);
  const auto refusals = std::make_shared<Refusals>(refused);
  const auto verifier =
      tls::ExternalCertificateVerifier::Create<JobVerifier>(dir / "ca.pem", job, refusals);

  // The verifier judges the whole chain. OpenSSL's own judgement on the server is switched off only
  // because a refusal inside the handshake could not be counted.
  tls::TlsServerCredentialsOptions server(files);
  server.watch_root_certs();
  server.watch_identity_key_cert_pairs();
  server.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  server.set_certificate_verifier(verifier);

  tls::TlsChannelCredentialsOptions channel;
  channel.set_certificate_provider(files);
  channel.watch_root_certs();
  channel.watch_identity_key_cert_pairs();
  channel.set_verify_server_certs(false);
  channel.set_check_call_host(false);
  channel.set_certificate_verifier(verifier);
  return PeerCredentials{tls::TlsServerCredentials(server), tls::TlsCredentials(channel),
                         std::shared_ptr<void>(nullptr, [refusals](void*) { refusals->End(); })};
}

StatusOr<PublicKey> KeyShownBy(const grpc::AuthContext& call) {
  const auto shown = call.FindPropertyValues("x509_pem_cert");
  // A call without it cannot be: the handshake requires one. More than one says nothing clear.
  if (shown.size() != 1) return absl::UnauthenticatedError("no certificate");
  return PublicKeyOfCertificate(std::string(shown[0].data(), shown[0].size()));
}

PeerCredentials MakeInsecureCredentials() {
  return {grpc::InsecureServerCredentials(), grpc::InsecureChannelCredentials(), nullptr};
}

}  // namespace crowdsurf::dht
