// Identity: the agent's Ed25519 key, boot counter, peer id and certificate, in its own directory.
//
// Files (contract: the agent's directory): key.pem (0600) is made once; boot is incremented at
// every Open, so that each start is a new peer (docs/agent.md); cert.pem is the chain the signer
// gave; ca.pem is the cluster's. Immutable after Open but for the certificate files; const methods
// from any thread. OpenSSL stays in the .cc. How others' certificates are judged:
// edge/certificate.h.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "coordinator-free-dht/core/wire/record.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace crowdsurf::dht {

class Identity : public RecordAuthority {
 public:
  // Loads or makes key.pem and increments boot. Fails when the directory is not writable or key.pem
  // is not an Ed25519 key. With an empty path: a key in memory only, boot 1 (tests).
  static StatusOr<std::unique_ptr<Identity>> Open(const std::filesystem::path& directory);
  ~Identity() override;
  Identity(const Identity&) = delete;
  Identity& operator=(const Identity&) = delete;

  const PeerId& id() const { return id_; }
  const PublicKey& public_key() const { return public_key_; }
  uint64_t boot() const { return boot_; }
  const std::filesystem::path& directory() const { return directory_; }

  Signature Sign(ByteView bytes) const override;  // about 50 us
  // About 130 us.
  bool Verify(const PublicKey& key, ByteView bytes, const Signature& signature) const override;

  // PEM certificate request for SAN DNS:peer.crowdsurf and URI crowdsurf://JOB/WORKER.
  StatusOr<std::string> CertificateRequest(const std::string& job, const std::string& worker) const;
  // Checks that the chain's first certificate is of this key and valid under ca.pem now, then
  // writes cert.pem (temporary name, rename).
  Status InstallCertificate(const std::string& chain_pem) const;
  // Two thirds of cert.pem's validity; an error when there is none that fits key and ca.pem.
  StatusOr<WallTime> RenewAt() const;

 private:
  Identity(evp_pkey_st* key, std::filesystem::path directory, uint64_t boot);
  evp_pkey_st* const key_;  // owned
  const std::filesystem::path directory_;
  PeerId id_;
  PublicKey public_key_{};
  const uint64_t boot_;
};

}  // namespace crowdsurf::dht
