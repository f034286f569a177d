// CertificateAuthority: one job's CA, whose key exists only here and where its owner keeps it (a
// Secret, or nowhere).
//
// Makes the CA (P-256, self-signed), the signer's own server certificate, and agents' certificates
// from their signing requests. What a request says about names is ignored: the caller says who it
// is. Any thread after creation (OpenSSL keys are reference counted and read-only here).
// Source: docs/security.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"

typedef struct evp_pkey_st EVP_PKEY;
typedef struct x509_st X509;

namespace crowdsurf::controller {

struct KeyDeleter {
  void operator()(EVP_PKEY* key) const;
};
struct CertificateDeleter {
  void operator()(X509* certificate) const;
};
using KeyPtr = std::unique_ptr<EVP_PKEY, KeyDeleter>;
using CertificatePtr = std::unique_ptr<X509, CertificateDeleter>;

struct ServerIdentity {
  KeyPtr key;
  CertificatePtr certificate;
};

class CertificateAuthority {
 public:
  // now: certificates begin five minutes earlier, for clocks that lag. Errors: InvalidArgument for
  // a job whose name no object can have (ownership.h); Internal.
  static StatusOr<CertificateAuthority> Create(const std::string& job, WallTime now);

  // One that was kept: what pem() and KeyPem() gave. Error: InvalidArgument when they do not fit,
  // or for a name as above.
  static StatusOr<CertificateAuthority> Load(const std::string& job, const std::string& pem,
                                             const std::string& key_pem);
  // The private key, PKCS #8, to be kept where only signers read. Error: Internal.
  StatusOr<std::string> KeyPem() const;

  // The CA's certificate: what peers trust.
  const std::string& pem() const { return pem_; }

  // A certificate for an HTTPS server reached at `hosts` (addresses or names), for as long as the
  // CA's own: it ends with the process that keeps it. Error: InvalidArgument for a host that is
  // neither.
  StatusOr<ServerIdentity> MakeServer(const std::vector<std::string>& hosts, WallTime now) const;

  // csr: PEM, of an Ed25519 key, signed with it. The certificate is good for a day, for client and
  // server use, with SAN DNS:peer.crowdsurf and URI:crowdsurf://JOB/WORKER. Returns the chain as
  // PEM. Errors: InvalidArgument for a request that is none, of another kind of key, or for a
  // worker whose name no object can have.
  StatusOr<std::string> SignAgent(const std::string& csr, const std::string& worker,
                                  WallTime now) const;

 private:
  CertificateAuthority() = default;

  std::string job_;
  KeyPtr key_;
  CertificatePtr certificate_;
  std::string pem_;
};

}  // namespace crowdsurf::controller
