#include "operator/edge/sign/certificate_authority.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <optional>
#include <utility>

#include "operator/core/job/ownership.h"

namespace crowdsurf::controller {
namespace {

constexpr Duration kLag = Seconds(300);                // of clocks
constexpr Duration kCaLife = Seconds(3650 * 86400.0);  // it dies with the run or the Secret
// Its key is in this process's memory and ends with it; nobody makes it anew before. A shorter life
// would be the longest that an operator may run: agents would no longer believe its signer.
constexpr Duration kServerLife = kCaLife;
constexpr Duration kAgentLife = Seconds(86400);
constexpr int kSerialBytes = 16;

using BioPtr = std::unique_ptr<BIO, decltype(&BIO_free)>;
using RequestPtr = std::unique_ptr<X509_REQ, decltype(&X509_REQ_free)>;

Status Failed(const char* what) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, ": ", text));
}

KeyPtr NewKey() { return KeyPtr(EVP_EC_gen("P-256")); }

std::string Pem(X509* certificate) {
  const BioPtr out(BIO_new(BIO_s_mem()), BIO_free);
  PEM_write_bio_X509(out.get(), certificate);
  char* text = nullptr;
  const long length = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(length));
}

bool SetTime(ASN1_TIME* field, WallTime time) {
  return ASN1_TIME_set(field, static_cast<time_t>(time.nanoseconds() / 1'000'000'000)) != nullptr;
}

bool AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// One name of the certificate's holder. Never text of a configuration: a comma is a letter of it.
struct HolderName {
  int type;  // GEN_DNS, GEN_URI, GEN_IPADD
  std::string value;
};

struct NamesDeleter {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

GENERAL_NAME* NewName(const HolderName& holder) {
  ASN1_STRING* text =
      ASN1_STRING_type_new(holder.type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
  GENERAL_NAME* name = GENERAL_NAME_new();
  const auto* bytes = reinterpret_cast<const unsigned char*>(holder.value.data());
  if (text == nullptr || name == nullptr ||
      ASN1_STRING_set(text, bytes, static_cast<int>(holder.value.size())) != 1) {
    ASN1_STRING_free(text);
    GENERAL_NAME_free(name);
    return nullptr;
  }
  // From here on the name owns the text.
  GENERAL_NAME_set0_value(name, holder.type, text);
  return name;
}

bool AddNames(X509* certificate, const std::vector<HolderName>& holders) {
  if (holders.empty()) return true;
  const std::unique_ptr<GENERAL_NAMES, NamesDeleter> names(GENERAL_NAMES_new());
  for (const HolderName& holder : holders) {
    GENERAL_NAME* name = NewName(holder);
    if (name == nullptr || sk_GENERAL_NAME_push(names.get(), name) == 0) {
      GENERAL_NAME_free(name);
      return false;
    }
  }
  return X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) ==
         1;
}

struct Wanted {
  std::string name;  // common name
  EVP_PKEY* key;
  X509* issuer;  // nullptr: itself
  EVP_PKEY* issuer_key;
  Duration life;
  std::vector<std::pair<int, std::string>>
      extensions;  // texts of OpenSSL's own, none of a caller's
  std::vector<HolderName> names = {};
};

CertificatePtr Make(const Wanted& wanted, WallTime now) {
  CertificatePtr certificate(X509_new());
  X509* x = certificate.get();
  unsigned char serial[kSerialBytes];
  if (x == nullptr || RAND_bytes(serial, sizeof serial) != 1) return nullptr;
  serial[0] &= 0x7f;  // positive
  BIGNUM* number = BN_bin2bn(serial, sizeof serial, nullptr);
  const bool numbered = BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x)) != nullptr;
  BN_free(number);
  X509_NAME* name = X509_get_subject_name(x);
  const bool named =
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(wanted.name.c_str()), -1,
                                 -1, 0) == 1;
  X509* issuer = wanted.issuer != nullptr ? wanted.issuer : x;
  // 2 stands for version 3, the only one with extensions (RFC 5280, 4.1.2.1).
  bool good = numbered && named && X509_set_version(x, 2) == 1 &&
              X509_set_issuer_name(x, X509_get_subject_name(issuer)) == 1 &&
              X509_set_pubkey(x, wanted.key) == 1 && SetTime(X509_getm_notBefore(x), now - kLag) &&
              SetTime(X509_getm_notAfter(x), now + wanted.life);
  for (const auto& [id, value] : wanted.extensions)
    good = good && AddExtension(x, issuer, id, value);
  good = good && AddNames(x, wanted.names);
  if (!good || X509_sign(x, wanted.issuer_key, EVP_sha256()) == 0) return nullptr;
  return certificate;
}

// nullopt: neither an address nor a name.
std::optional<HolderName> NameOfHost(const std::string& host) {
  char address[16];
  if (inet_pton(AF_INET, host.c_str(), address) == 1) return {{GEN_IPADD, {address, 4}}};
  if (inet_pton(AF_INET6, host.c_str(), address) == 1) return {{GEN_IPADD, {address, 16}}};
  if (!IsObjectName(host)) return std::nullopt;
  return {{GEN_DNS, host}};
}

Status RefuseName(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(what, " has a name that no object can have"));
}

}  // namespace

void KeyDeleter::operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
void CertificateDeleter::operator()(X509* certificate) const { X509_free(certificate); }

StatusOr<CertificateAuthority> CertificateAuthority::Create(const std::string& job, WallTime now) {
  if (!IsObjectName(job)) return RefuseName("the job");
  CertificateAuthority authority;
  authority.job_ = job;
  authority.key_ = NewKey();
  if (!authority.key_) return Failed("making the CA's key");
  authority.certificate_ = Make({"crowdsurf job " + job,
                                 authority.key_.get(),
                                 nullptr,
                                 authority.key_.get(),
                                 kCaLife,
                                 // No CA below this one, whatever it signs.
                                 {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                  {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                  {NID_subject_key_identifier, "hash"}}},
                                now);
  if (!authority.certificate_) return Failed("making the CA's certificate");
  authority.pem_ = Pem(authority.certificate_.get());
  return authority;
}

StatusOr<CertificateAuthority> CertificateAuthority::Load(const std::string& job,
                                                          const std::string& pem,
                                                          const std::string& key_pem) {
  if (!IsObjectName(job)) return RefuseName("the job");
  CertificateAuthority authority;
  authority.job_ = job;
  authority.pem_ = pem;
  const BioPtr certificate(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  const BioPtr key(BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size())), BIO_free);
  authority.certificate_.reset(PEM_read_bio_X509(certificate.get(), nullptr, nullptr, nullptr));
  authority.key_.reset(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
  if (!authority.certificate_ || !authority.key_ ||
      X509_check_private_key(authority.certificate_.get(), authority.key_.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the CA's certificate and key are no pair in PEM");
  }
  return authority;
}

StatusOr<std::string> CertificateAuthority::KeyPem() const {
  const BioPtr out(BIO_new(BIO_s_mem()), BIO_free);
  if (PEM_write_bio_PKCS8PrivateKey(out.get(), key_.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
      1) {
    return Failed("writing the CA's key");
  }
  char* text = nullptr;
  const long length = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(length));
}

StatusOr<ServerIdentity> CertificateAuthority::MakeServer(const std::vector<std::string>& hosts,
                                                          WallTime now) const {
  std::vector<HolderName> names;
  for (const std::string& host : hosts) {
    auto name = NameOfHost(host);
    if (!name) return RefuseName("a host of the server");
    names.push_back(*std::move(name));
  }
  ServerIdentity server;
  server.key = NewKey();
  if (!server.key) return Failed("making the signer's key");
  server.certificate = Make({"crowdsurf signer",
                             server.key.get(),
                             certificate_.get(),
                             key_.get(),
                             kServerLife,
                             {{NID_basic_constraints, "critical,CA:FALSE"},
                              {NID_key_usage, "critical,digitalSignature"},
                              {NID_ext_key_usage, "serverAuth"},
                              {NID_authority_key_identifier, "keyid"}},
                             std::move(names)},
                            now);
  if (!server.certificate) return Failed("making the signer's certificate");
  return server;
}

StatusOr<std::string> CertificateAuthority::SignAgent(const std::string& csr,
                                                      const std::string& worker,
                                                      WallTime now) const {
  if (!IsObjectName(worker)) return RefuseName("the worker");
  const BioPtr in(BIO_new_mem_buf(csr.data(), static_cast<int>(csr.size())), BIO_free);
  const RequestPtr request(PEM_read_bio_X509_REQ(in.get(), nullptr, nullptr, nullptr),
                           X509_REQ_free);
  if (!request) {
    ERR_clear_error();
    return absl::InvalidArgumentError("csr is not a certificate signing request in PEM");
  }
  EVP_PKEY* key = X509_REQ_get0_pubkey(request.get());
  if (key == nullptr || EVP_PKEY_get_base_id(key) != EVP_PKEY_ED25519) {
    ERR_clear_error();
    return absl::InvalidArgumentError("csr is not for an Ed25519 key");
  }
  // The signature proves that the sender has the key.
  if (X509_REQ_verify(request.get(), key) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("csr is not signed with its own key");
  }
  const CertificatePtr certificate =
      Make({worker,
            key,
            certificate_.get(),
            key_.get(),
            kAgentLife,
            {{NID_basic_constraints, "critical,CA:FALSE"},
             {NID_key_usage, "critical,digitalSignature"},
             {NID_ext_key_usage, "clientAuth,serverAuth"},
             {NID_authority_key_identifier, "keyid"}},
            {{GEN_DNS, "peer.crowdsurf"}, {GEN_URI, "crowdsurf://" + job_ + "/" + worker}}},
           now);
  if (!certificate) return Failed("signing");
  // The holder's certificate first, as TLS sends a chain (RFC 8446, 4.4.2).
  return Pem(certificate.get()) + pem_;
}

}  // namespace crowdsurf::controller
