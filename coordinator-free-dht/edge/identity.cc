#include "coordinator-free-dht/edge/identity.h"

#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/edge/files.h"
#include "coordinator-free-dht/edge/certificate.h"
#include "coordinator-free-dht/edge/openssl_handles.h"

namespace crowdsurf::dht {
namespace {

using openssl::KeyHandle;

StatusOr<std::string> ToPem(EVP_PKEY* key) {
  const openssl::BioHandle bio = openssl::WriteBio();
  if (PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return openssl::LastError("private key");
  }
  return openssl::Contents(bio);
}

StatusOr<KeyHandle> NewKey() {
  KeyHandle key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  if (!key) return openssl::LastError("make an Ed25519 key");
  return key;
}

StatusOr<KeyHandle> LoadOrMakeKey(const std::filesystem::path& path) {
  const auto pem = ReadFile(path, 64 << 10);
  // Only where there is none: a key that cannot be read must not be replaced by another identity.
  if (absl::IsNotFound(pem.status())) {
    ASSIGN_OR_RETURN(KeyHandle key, NewKey());
    ASSIGN_OR_RETURN(const std::string text, ToPem(key.get()));
    RETURN_IF_ERROR(
        WriteFileAtomically(path.string(), text, {.durable = Durable::kYes, .mode = 0600}));
    return key;
  }
  if (!pem.ok()) return pem.status();
  const openssl::BioHandle bio = openssl::ReadBio(*pem);
  KeyHandle key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (!key) return openssl::LastError(path.string());
  // A user may have put it there. A peer's id needs the 32 raw bytes of an Ed25519 key.
  if (EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_ED25519) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": is not an Ed25519 key"));
  }
  return key;
}

StatusOr<uint64_t> NextBoot(const std::filesystem::path& path) {
  uint64_t last = 0;
  const auto text = ReadFile(path, 64);
  if (text.ok()) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), last);
    if (error != std::errc()) {
      return absl::InvalidArgumentError(absl::StrCat(path.string(), ": is not a number"));
    }
  } else if (!absl::IsNotFound(text.status())) {
    // Begun again at 1, the number would give the id of an earlier life, which peers hold for dead.
    return text.status();
  }
  RETURN_IF_ERROR(
      WriteFileAtomically(path.string(), absl::StrCat(last + 1, "\n"), {.durable = Durable::kYes}));
  return last + 1;
}

}  // namespace

Identity::Identity(EVP_PKEY* key, std::filesystem::path directory, uint64_t boot)
    : key_(key), directory_(std::move(directory)), boot_(boot) {
  size_t size = public_key_.size();
  CHECK_EQ(EVP_PKEY_get_raw_public_key(key_, public_key_.data(), &size), 1);
  id_ = PeerIdOf(public_key_, boot_);
}

Identity::~Identity() { EVP_PKEY_free(key_); }

StatusOr<std::unique_ptr<Identity>> Identity::Open(const std::filesystem::path& directory) {
  if (directory.empty()) {
    ASSIGN_OR_RETURN(KeyHandle key, NewKey());
    return std::unique_ptr<Identity>(new Identity(key.release(), directory, 1));
  }
  ASSIGN_OR_RETURN(KeyHandle key, LoadOrMakeKey(directory / "key.pem"));
  // On disk before it is used: a crash from here on costs a number and never repeats one.
  ASSIGN_OR_RETURN(const uint64_t boot, NextBoot(directory / "boot"));
  return std::unique_ptr<Identity>(new Identity(key.release(), directory, boot));
}

Signature Identity::Sign(ByteView bytes) const {
  Signature out;
  size_t size = out.size();
  const openssl::DigestHandle context(EVP_MD_CTX_new());
  CHECK_EQ(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_), 1);
  CHECK_EQ(EVP_DigestSign(context.get(), out.data(), &size, bytes.data(), bytes.size()), 1);
  return out;
}

bool Identity::Verify(const PublicKey& key, ByteView bytes, const Signature& signature) const {
  const KeyHandle handle(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()));
  const openssl::DigestHandle context(EVP_MD_CTX_new());
  const bool good =
      handle && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, handle.get()) == 1 &&
      EVP_DigestVerify(context.get(), signature.data(), signature.size(), bytes.data(),
                       bytes.size()) == 1;
  // Forged records come from outside, and the queue of this thread would grow with them.
  if (!good) ERR_clear_error();
  return good;
}

StatusOr<std::string> Identity::CertificateRequest(const std::string& job,
                                                   const std::string& worker) const {
  const openssl::RequestHandle request(X509_REQ_new());
  X509_NAME* const name = X509_REQ_get_subject_name(request.get());
  // A common name has at most 64 characters; the URI below carries the whole of it.
  const std::string common = worker.substr(0, 64);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common.data()),
                             static_cast<int>(common.size()), -1, 0);
  const std::string names = absl::StrCat("DNS:", kPeerName, ",URI:crowdsurf://", job, "/", worker);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str());
  if (extension == nullptr) return openssl::LastError("certificate request: names");
  STACK_OF(X509_EXTENSION)* const extensions = sk_X509_EXTENSION_new_null();
  sk_X509_EXTENSION_push(extensions, extension);
  X509_REQ_add_extensions(request.get(), extensions);
  sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
  if (X509_REQ_set_pubkey(request.get(), key_) != 1 ||
      X509_REQ_sign(request.get(), key_, nullptr) == 0) {
    return openssl::LastError("certificate request");
  }
  const openssl::BioHandle bio = openssl::WriteBio();
  if (PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1) {
    return openssl::LastError("certificate request");
  }
  return openssl::Contents(bio);
}

Status Identity::InstallCertificate(const std::string& chain_pem) const {
  ASSIGN_OR_RETURN(const PublicKey key, PublicKeyOfCertificate(chain_pem));
  if (key != public_key_) {
    return absl::InvalidArgumentError("certificate: is of another key than key.pem");
  }
  ASSIGN_OR_RETURN(const std::string ca, ReadFile(directory_ / "ca.pem"));
  // Peers would refuse it; so the one that works is not replaced by it.
  RETURN_IF_ERROR(VerifyPeerCertificate(chain_pem, ca, ""));
  return WriteFileAtomically((directory_ / "cert.pem").string(), chain_pem,
                             {.durable = Durable::kYes});
}

StatusOr<WallTime> Identity::RenewAt() const {
  ASSIGN_OR_RETURN(const std::string chain, ReadFile(directory_ / "cert.pem"));
  ASSIGN_OR_RETURN(const std::string ca, ReadFile(directory_ / "ca.pem"));
  ASSIGN_OR_RETURN(const PublicKey key, PublicKeyOfCertificate(chain));
  if (key != public_key_) {
    return absl::InvalidArgumentError("cert.pem: is of another key than key.pem");
  }
  RETURN_IF_ERROR(VerifyPeerCertificate(chain, ca, ""));
  ASSIGN_OR_RETURN(const Validity validity, ValidityOfCertificate(chain));
  // A third of its life is left for a signer that is away, which is hours of a day's certificate.
  return validity.from + (validity.until - validity.from) * (2.0 / 3.0);
}

}  // namespace crowdsurf::dht
