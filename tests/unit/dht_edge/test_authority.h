// TestAuthority: a certificate authority in memory, and agents' directories signed by it, for
// tests.
//
// What the signer does in production (operator/edge), reduced to what these tests need, so that the
// code under test is judged by certificates it did not make. Single sequence.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "base/edge/files.h"
#include "coordinator-free-dht/edge/identity.h"
#include "coordinator-free-dht/edge/openssl_handles.h"

namespace crowdsurf::dht {

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name = "test job")
      : key_(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")), certificate_(X509_new()) {
    X509* const ca = certificate_.get();
    Prepare(ca, name, 3600);
    X509_set_pubkey(ca, key_.get());
    X509_set_issuer_name(ca, X509_get_subject_name(ca));
    AddExtension(ca, NID_basic_constraints, "critical,CA:TRUE");
    AddExtension(ca, NID_key_usage, "critical,keyCertSign,cRLSign");
    X509_sign(ca, key_.get(), nullptr);
  }

  std::string ca_pem() const { return ToPem(certificate_.get()); }

  struct Leaf {
    long seconds = 600;  // validity from a minute ago; negative: expired
    std::string names = "DNS:peer.crowdsurf,URI:crowdsurf://job/worker-0";
    std::string usage = "clientAuth,serverAuth";
    std::string common_name = "peer";
  };
  // Signs `public_key_owner`'s key.
  std::string Sign(EVP_PKEY* public_key_owner, const Leaf& leaf) const {
    const openssl::CertificateHandle certificate(X509_new());
    X509* const x = certificate.get();
    Prepare(x, leaf.common_name, leaf.seconds);
    X509_set_issuer_name(x, X509_get_subject_name(certificate_.get()));
    X509_set_pubkey(x, public_key_owner);
    AddExtension(x, NID_basic_constraints, "critical,CA:FALSE");
    AddExtension(x, NID_ext_key_usage, leaf.usage.c_str());
    AddExtension(x, NID_subject_alt_name, leaf.names.c_str());
    X509_sign(x, key_.get(), nullptr);
    return ToPem(x);
  }
  std::string SignRequest(const std::string& csr_pem, const Leaf& leaf) const {
    const openssl::BioHandle bio = openssl::ReadBio(csr_pem);
    const openssl::RequestHandle csr(PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
    return Sign(X509_REQ_get0_pubkey(csr.get()), leaf);
  }

  // A directory with ca.pem, key.pem and cert.pem, ready for Identity::Open.
  void Equip(const std::filesystem::path& directory, const Leaf& leaf) const {
    std::filesystem::create_directories(directory);
    Write(directory / "ca.pem", ca_pem());
    const auto identity = Identity::Open(directory);
    const auto csr = (*identity)->CertificateRequest("job", "worker-0");
    Write(directory / "cert.pem", SignRequest(*csr, leaf));
  }

  static void Write(const std::filesystem::path& path, const std::string& text) {
    if (!WriteFileAtomically(path, text).ok()) std::abort();
  }

 private:
  static void Prepare(X509* x, const std::string& name, long seconds) {
    static std::atomic<long> serial = 1;  // servers of tests sign, too
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial++);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), seconds);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  }
  static void AddExtension(X509* x, int nid, const char* value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
    X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
  }
  static std::string ToPem(X509* x) {
    const openssl::BioHandle bio = openssl::WriteBio();
    PEM_write_bio_X509(bio.get(), x);
    return openssl::Contents(bio);
  }

  openssl::KeyHandle key_;
  openssl::CertificateHandle certificate_;
};

// A directory of its own that goes away.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "crowdsurf-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace crowdsurf::dht
