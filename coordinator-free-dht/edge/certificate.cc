#include "coordinator-free-dht/edge/certificate.h"

#include <ctime>

#include "coordinator-free-dht/edge/openssl_handles.h"

namespace crowdsurf::dht {
namespace {

using openssl::CertificateHandle;

StatusOr<PublicKey> RawKey(X509* certificate) {
  EVP_PKEY* const key = X509_get0_pubkey(certificate);
  // A peer's id is the hash of this key; another kind of key would give no id.
  if (key == nullptr || EVP_PKEY_get_base_id(key) != EVP_PKEY_ED25519) {
    return absl::InvalidArgumentError("certificate: its key is not Ed25519");
  }
  PublicKey out;
  size_t size = out.size();
  if (EVP_PKEY_get_raw_public_key(key, out.data(), &size) != 1 || size != out.size()) {
    return openssl::LastError("certificate: public key");
  }
  return out;
}

StatusOr<WallTime> ToWallTime(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return openssl::LastError("certificate: time");
  // timegm, not mktime: the time zone of the machine must not shift a certificate's life.
  return WallTime::FromNanoseconds(static_cast<int64_t>(timegm(&parts)) * 1'000'000'000);
}

bool HasUriWithPrefix(X509* certificate, const std::string& prefix) {
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  bool found = false;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                           static_cast<size_t>(ASN1_STRING_length(uri)));
    // A certificate may carry several URIs; one of this job is enough.
    found = found || text.starts_with(prefix);
  }
  GENERAL_NAMES_free(names);
  return found;
}

enum class ValidAt : uint8_t { kNow, kAnyTime };

Status VerifyChain(const std::vector<CertificateHandle>& chain, const std::string& ca_pem,
                   ValidAt at) {
  const std::vector<CertificateHandle> roots = openssl::ReadCertificates(ca_pem);
  if (roots.empty()) return absl::FailedPreconditionError("ca.pem: holds no certificate");
  const openssl::StoreHandle store(X509_STORE_new());
  // All of them: while a CA is replaced, ca.pem holds the old and the new one.
  for (const CertificateHandle& root : roots) X509_STORE_add_cert(store.get(), root.get());
  STACK_OF(X509)* const others = sk_X509_new_null();
  // The peer sends the intermediate certificates; they help to find a way to a root and are no
  // roots.
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(others, chain[i].get());
  const openssl::StoreContextHandle context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), others);
  if (at == ValidAt::kAnyTime) X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_NO_CHECK_TIME);
  const bool good = X509_verify_cert(context.get()) == 1;
  // Read before the cleaning, which forgets it.
  const int error = X509_STORE_CTX_get_error(context.get());
  sk_X509_free(others);
  // The error queue is the thread's, and gRPC would find our entries in it.
  ERR_clear_error();
  if (good) return absl::OkStatus();
  return absl::UnauthenticatedError(
      absl::StrCat("certificate: ", X509_verify_cert_error_string(error)));
}

Status Verify(const std::string& chain_pem, const std::string& ca_pem, const std::string& job,
              ValidAt at) {
  const std::vector<CertificateHandle> chain = openssl::ReadCertificates(chain_pem);
  if (chain.empty()) return absl::UnauthenticatedError("certificate: none was shown");
  X509* const leaf = chain.front().get();
  // Cheapest first: the chain costs two signatures.
  RETURN_IF_ERROR(RawKey(leaf).status());
  RETURN_IF_ERROR(VerifyChain(chain, ca_pem, at));
  // A CA's certificate chains to itself, and must not be good as a peer.
  if (X509_check_ca(leaf) != 0) {
    return absl::UnauthenticatedError("certificate: is a CA's, not a peer's");
  }
  if (X509_check_host(leaf, kPeerName, sizeof kPeerName - 1, 0, nullptr) != 1) {
    return absl::UnauthenticatedError(absl::StrCat("certificate: is not for ", kPeerName));
  }
  if (!job.empty() && !HasUriWithPrefix(leaf, absl::StrCat("crowdsurf://", job, "/"))) {
    return absl::UnauthenticatedError(absl::StrCat("certificate: is not of job ", job));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ChainWithLeaf(std::string_view leaf, std::string_view rest) {
  if (rest.starts_with(leaf)) return std::string(rest);
  return std::string(leaf).append("\n").append(rest);
}

Status VerifyPeerCertificate(const std::string& chain_pem, const std::string& ca_pem,
                             const std::string& job) {
  return Verify(chain_pem, ca_pem, job, ValidAt::kNow);
}

Status VerifyPastCertificate(const std::string& chain_pem, const std::string& ca_pem,
                             const std::string& job) {
  return Verify(chain_pem, ca_pem, job, ValidAt::kAnyTime);
}

StatusOr<PublicKey> PublicKeyOfCertificate(const std::string& pem) {
  const std::vector<CertificateHandle> chain = openssl::ReadCertificates(pem);
  if (chain.empty()) return absl::InvalidArgumentError("certificate: not PEM");
  return RawKey(chain.front().get());
}

StatusOr<Validity> ValidityOfCertificate(const std::string& pem) {
  const std::vector<CertificateHandle> chain = openssl::ReadCertificates(pem);
  if (chain.empty()) return absl::InvalidArgumentError("certificate: not PEM");
  Validity out;
  ASSIGN_OR_RETURN(out.from, ToWallTime(X509_get0_notBefore(chain.front().get())));
  ASSIGN_OR_RETURN(out.until, ToWallTime(X509_get0_notAfter(chain.front().get())));
  return out;
}

}  // namespace crowdsurf::dht
