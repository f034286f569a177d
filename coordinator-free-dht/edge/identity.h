// Identity: the agent's Ed25519 key, boot counter, peer id and certificate, in its own directory.
//
// Files (contract: the agent's directory): key.pem (0600) is made once; boot is incremented at
// every Open, so that each start is a new peer (DESIGN 4); cert.pem is the chain the signer gave;
// ca.pem is the cluster's. Also the verification of other peers: their certificate against ca.pem,
// their id from its public key. Immutable after Open but for the certificate files; const methods
// from any thread. OpenSSL stays in the .cc.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "coordinator-free-dht/core/record.h"

namespace crowdsurf::dht {

class Identity : public RecordAuthority {
 public:
  // Loads or makes key.pem and increments boot. Fails when the directory is not writable or key.pem
  // is not an Ed25519 key. With an empty path: a key in memory only, boot 1 (tests, TLS Disabled).
  static StatusOr<std::unique_ptr<Identity>> Open(const std::filesystem::path& directory);
  ~Identity() override;

  const PeerId& id() const { return id_; }
  const PublicKey& public_key() const { return public_key_; }
  uint64_t boot() const { return boot_; }
  const std::filesystem::path& directory() const { return directory_; }

  Signature Sign(ByteView bytes) const override;  // about 50 us
  bool Verify(const PublicKey& key, ByteView bytes,
              const Signature& signature) const override;  // about 130 us

  // PEM certificate request for SAN DNS:peer.crowdsurf and URI crowdsurf://JOB/WORKER.
  StatusOr<std::string> CertificateRequest(const std::string& job, const std::string& worker) const;
  // Checks that the chain's first certificate is of this key and valid under ca.pem now, then
  // writes cert.pem (temporary name, rename).
  Status InstallCertificate(const std::string& chain_pem) const;
  // Two thirds of cert.pem's validity; an error when there is none that fits key and ca.pem.
  StatusOr<WallTime> RenewAt() const;

 private:
  struct Impl;
  explicit Identity(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  std::filesystem::path directory_;
  PeerId id_;
  PublicKey public_key_{};
  uint64_t boot_ = 0;
};

// The raw Ed25519 key of the first certificate in `pem`; an error for any other kind of key.
StatusOr<PublicKey> PublicKeyOfCertificate(const std::string& pem);

// Is `chain_pem` (leaf first) an Ed25519 certificate under `ca_pem`, valid at the present time,
// with SAN DNS:peer.crowdsurf? The error says which check failed.
Status VerifyPeerCertificate(const std::string& chain_pem, const std::string& ca_pem);

}  // namespace crowdsurf::dht
