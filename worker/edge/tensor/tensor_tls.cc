#include "worker/edge/tensor/tensor_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "worker/edge/tensor/tls_slab.h"

namespace crowdsurf::worker {
namespace {

constexpr char kPeerName[] = "peer.crowdsurf";             // SAN of every agent's certificate
constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;  // what one record holds

std::string OpenSslError() {
  char text[160] = "no further detail";
  if (const unsigned long code = ERR_get_error(); code != 0) {
    ERR_error_string_n(code, text, sizeof text);
  }
  ERR_clear_error();
  return text;
}

}  // namespace

struct TlsCredentials::Context {
  SSL_CTX* ctx = nullptr;
  ~Context() { SSL_CTX_free(ctx); }
};

TlsCredentials::TlsCredentials(std::filesystem::path directory)
    : directory_(std::move(directory)) {}
TlsCredentials::~TlsCredentials() = default;

Status TlsCredentials::Refresh() {
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(directory_ / "cert.pem", error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat((directory_ / "cert.pem").string(), ": ", error.message()));
  }
  if (context_ != nullptr && changed == loaded_) return absl::OkStatus();
  // Complete before it replaces the old one: after an error, what was loaded stays in use.
  auto context = std::make_shared<Context>();
  context->ctx = SSL_CTX_new(TLS_method());
  SSL_CTX* ctx = context->ctx;
  if (ctx == nullptr) return absl::InternalError(OpenSslError());
  SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(
      ctx, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_num_tickets(ctx, 0);  // connections live long; a ticket would be a write by a reader
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
  // Both sides show a certificate: who accepts has to know its peer as well.
  SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_verify_depth(ctx, 4);
  const std::string key = directory_ / "key.pem", chain = directory_ / "cert.pem",
                    ca = directory_ / "ca.pem";
  if (SSL_CTX_load_verify_file(ctx, ca.c_str()) != 1) {
    return absl::FailedPreconditionError(absl::StrCat(ca, ": ", OpenSslError()));
  }
  if (SSL_CTX_use_certificate_chain_file(ctx, chain.c_str()) != 1) {
    return absl::FailedPreconditionError(absl::StrCat(chain, ": ", OpenSslError()));
  }
  // After the certificate: OpenSSL then compares the key with it.
  if (SSL_CTX_use_PrivateKey_file(ctx, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return absl::FailedPreconditionError(absl::StrCat(key, ": ", OpenSslError()));
  }
  context_ = std::move(context);
  loaded_ = changed;
  return absl::OkStatus();
}

struct TlsStream::Session {
  Session(int fd, const std::shared_ptr<BytePool>& slabs) : slab(fd, slabs) {}
  TlsSlab slab;  // outlives ssl, whose BIO uses it
  SSL* ssl = nullptr;
  std::shared_ptr<TlsCredentials::Context> context;
  ~Session() { SSL_free(ssl); }
};

TlsStream::TlsStream(const TlsCredentials& credentials, int fd, Side side)
    : session_(std::make_unique<Session>(fd, credentials.slabs_)) {
  CHECK(credentials.context_ != nullptr);
  session_->context = credentials.context_;
  session_->ssl = SSL_new(session_->context->ctx);
  CHECK(session_->ssl != nullptr);
  BIO* bio = session_->slab.NewBio();
  SSL_set_bio(session_->ssl, bio, bio);  // which owns it now
  // The same name on both sides: a client certificate is checked as a server's is.
  CHECK_EQ(SSL_set1_host(session_->ssl, kPeerName), 1);
  side == Side::kAccepts ? SSL_set_accept_state(session_->ssl)
                         : SSL_set_connect_state(session_->ssl);
}
TlsStream::~TlsStream() = default;

IoOutcome TlsStream::Outcome(int returned) {
  switch (SSL_get_error(session_->ssl, returned)) {
    case SSL_ERROR_WANT_READ:
      return {IoState::kWantRead, 0};
    case SSL_ERROR_WANT_WRITE:
      return {IoState::kWantWrite, 0};
    case SSL_ERROR_ZERO_RETURN:
      return {IoState::kClosed, 0};
    case SSL_ERROR_SYSCALL:
      ERR_clear_error();
      return {IoState::kClosed, 0};
    default:
      break;
  }
  // An end of file without close_notify is how a killed process looks.
  if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    ERR_clear_error();
    return {IoState::kClosed, 0};
  }
  const long verified = SSL_get_verify_result(session_->ssl);
  error_ = verified == X509_V_OK
               ? OpenSslError()
               : absl::StrCat("certificate: ", X509_verify_cert_error_string(verified));
  ERR_clear_error();
  return {IoState::kFailed, 0};
}

IoOutcome TlsStream::Handshake() {
  // SSL_get_error looks at the thread's queue of errors, so it is emptied before each call.
  ERR_clear_error();
  const int returned = SSL_do_handshake(session_->ssl);
  return returned == 1 ? IoOutcome{IoState::kDone, 1} : Outcome(returned);
}

IoOutcome TlsStream::Read(std::span<uint8_t> into) {
  ERR_clear_error();
  size_t bytes = 0;
  const int returned = SSL_read_ex(session_->ssl, into.data(), into.size(), &bytes);
  return returned == 1 ? IoOutcome{IoState::kDone, bytes} : Outcome(returned);
}

// With room for a record OpenSSL is never told to wait in the middle of one, so no record has to be
// tried again with the same bytes.
IoOutcome TlsStream::Write(ByteView bytes) {
  size_t taken = 0;
  while (taken < bytes.size()) {
    if (!session_->slab.HasRoom()) {
      const IoOutcome flushed = session_->slab.MakeRoom();
      if (flushed.state != IoState::kDone)
        return taken > 0 ? IoOutcome{IoState::kDone, taken} : flushed;
    }
    ERR_clear_error();
    size_t written = 0;
    const size_t most = std::min(kRecordBytes, bytes.size() - taken);
    const int returned = SSL_write_ex(session_->ssl, bytes.data() + taken, most, &written);
    if (returned != 1) return Outcome(returned);
    taken += written;
  }
  return {IoState::kDone, taken};
}

IoOutcome TlsStream::Flush() { return session_->slab.Flush(); }

std::optional<dht::PublicKey> TlsStream::PeerKey() const {
  X509* certificate = SSL_get0_peer_certificate(session_->ssl);
  if (certificate == nullptr) return std::nullopt;
  EVP_PKEY* key = X509_get0_pubkey(certificate);
  if (key == nullptr || EVP_PKEY_id(key) != EVP_PKEY_ED25519) return std::nullopt;
  dht::PublicKey raw{};
  size_t size = raw.size();
  if (EVP_PKEY_get_raw_public_key(key, raw.data(), &size) != 1 || size != raw.size()) {
    return std::nullopt;
  }
  return raw;
}

bool TlsStream::PeerIsOfJob(const std::string& job) const {
  X509* certificate = SSL_get0_peer_certificate(session_->ssl);
  if (certificate == nullptr) return false;
  // The slash ends the name: job "a" is not job "ab".
  const std::string prefix = absl::StrCat("crowdsurf://", job, "/");
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  // Without such names the stack is null, and its number is -1.
  bool found = false;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                           static_cast<size_t>(ASN1_STRING_length(uri)));
    found = found || text.rfind(prefix, 0) == 0;
  }
  GENERAL_NAMES_free(names);
  return found;
}

}  // namespace crowdsurf::worker
