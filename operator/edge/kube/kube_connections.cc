#include "operator/edge/kube/kube_connections.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace crowdsurf::controller {
namespace {

using std::chrono::steady_clock;

// API servers end connections that were idle for 90 s, many load balancers after 60 s.
constexpr std::chrono::seconds kMaxIdle{45};

struct Freed {
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};

std::unique_ptr<BIO, Freed> Memory(const std::string& pem) {
  return std::unique_ptr<BIO, Freed>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

void SetOption(int socket, int level, int option, int value) {
  (void)setsockopt(socket, level, option, &value, sizeof value);  // without it: as before
}

// Probes after a quarter of the time in silence, three times; what was sent and is not acknowledged
// within it ends the connection, too.
void NoticeSilence(int socket) {
  constexpr int kQuarter_s = KubeConnections::kGoneAfter_s / 4;
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, kQuarter_s);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, kQuarter_s);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, KubeConnections::kGoneAfter_s * 1000);
}

// All certificates of a PEM bundle in a store that the client will own.
X509_STORE* StoreOf(const std::string& pem) {
  X509_STORE* store = X509_STORE_new();
  const auto bio = Memory(pem);
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    X509_STORE_add_cert(store, certificate);
    X509_free(certificate);
  }
  return store;
}

}  // namespace

httplib::Headers KubeConnections::HeadersFor(const KubeCredentials& credentials) const {
  httplib::Headers headers{{"User-Agent", user_agent_}, {"Accept", "application/json"}};
  if (!credentials.token.empty()) headers.emplace("Authorization", "Bearer " + credentials.token);
  for (const auto& [name, value] : endpoint_.headers) headers.emplace(name, value);
  return headers;
}

StatusOr<KubeConnections::Lease> KubeConnections::Connect() const {
  ASSIGN_OR_RETURN(const KubeCredentials credentials, endpoint_.credentials());
  Lease lease{nullptr,        std::make_shared<SocketLine>(), HeadersFor(credentials),
              endpoint_.path, credentials.certificate,        false};
  if (!endpoint_.tls) {
    lease.client = std::make_unique<httplib::ClientImpl>(endpoint_.host, endpoint_.port);
  } else {
    std::unique_ptr<X509, Freed> certificate;
    std::unique_ptr<EVP_PKEY, Freed> key;
    const auto chain = Memory(credentials.certificate);
    if (!credentials.certificate.empty()) {
      certificate.reset(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
      key.reset(PEM_read_bio_PrivateKey(Memory(credentials.key).get(), nullptr, nullptr, nullptr));
      if (!certificate || !key)
        return absl::InvalidArgumentError("kubeconfig: the client certificate or key is no PEM");
    }
    auto tls = std::make_unique<httplib::SSLClient>(endpoint_.host, endpoint_.port,
                                                    certificate.get(), key.get());
    // The certificates of its issuers, which the server may not have.
    while (X509* issuer = PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr)) {
      SSL_CTX_add_extra_chain_cert(tls->ssl_context(), issuer);  // takes it
    }
    ERR_clear_error();  // the end of the text is one
    if (!endpoint_.ca.empty()) tls->set_ca_cert_store(StoreOf(endpoint_.ca));
    tls->enable_server_certificate_verification(!endpoint_.skip_verification);
    lease.client = std::move(tls);
  }
  // Whole seconds, because a fraction of one would become zero.
  const auto seconds = static_cast<time_t>(std::max(1.0, timeout_.seconds()));
  lease.client->set_connection_timeout(seconds);
  lease.client->set_read_timeout(seconds);
  lease.client->set_write_timeout(seconds);
  lease.client->set_keep_alive(true);
  lease.client->set_tcp_nodelay(true);
  // When the socket is made, so that Cut ends a connect that hangs, too.
  lease.client->set_socket_options([line = lease.line](socket_t socket) {
    NoticeSilence(socket);
    line->Opened(socket);
  });
  return lease;
}

StatusOr<KubeConnections::Lease> KubeConnections::Acquire(steady_clock::time_point until) {
  ASSIGN_OR_RETURN(const KubeCredentials credentials, endpoint_.credentials());
  {
    std::unique_lock lock(mutex_);
    const bool free = freed_.wait_until(lock, until, [&] { return stopped_ || out_ < max_; });
    if (stopped_) return absl::CancelledError("the client is stopping");
    if (!free) return absl::UnavailableError("every connection to the API server is in use");
    ++out_;
    while (!idle_.empty()) {
      Lease lease = std::move(idle_.back());
      idle_.pop_back();
      if (lease.certificate != credentials.certificate) continue;  // renewed: connect anew
      if (steady_clock::now() - lease.idle_since > kMaxIdle) continue;
      lease.headers = HeadersFor(credentials);
      lease.used = true;
      return lease;
    }
  }
  StatusOr<Lease> lease = Connect();
  // Without a connection the place in the pool is free again.
  if (!lease.ok()) Discard();
  return lease;
}

void KubeConnections::Release(Lease lease) {
  {
    const std::lock_guard lock(mutex_);
    --out_;
    lease.idle_since = steady_clock::now();
    if (!stopped_) idle_.push_back(std::move(lease));
  }
  freed_.notify_one();
}

void KubeConnections::Discard() {
  {
    const std::lock_guard lock(mutex_);
    --out_;
  }
  freed_.notify_one();
}

void KubeConnections::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  freed_.notify_all();
}

}  // namespace crowdsurf::controller
