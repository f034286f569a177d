#include "worker/edge/state/checkpoint_seal.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/edge/files.h"
#include "coordinator-free-dht/edge/certificate.h"
#include "worker/edge/link/owned_fd.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kMagic = 0x314c414553465343;  // the bytes "CSFSEAL1"
constexpr size_t kMaxChain = 64 << 10;           // bytes of PEM; a certificate has 1 KiB
constexpr size_t kMaxSeal = kMaxChain + 128;

// nullopt: there is none of that size.
std::optional<Bytes> ReadSeal(const std::string& path) {
  const OwnedFd file(OpenSharedFile(path));
  if (!file.valid()) return std::nullopt;
  Bytes bytes(kMaxSeal + 1);
  const ssize_t size = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  if (size <= 0 || static_cast<size_t>(size) > kMaxSeal) return std::nullopt;
  bytes.resize(static_cast<size_t>(size));
  return bytes;
}

}  // namespace

CheckpointSeals::CheckpointSeals(const dht::Identity& identity, std::string job)
    : identity_(identity), job_(std::move(job)) {}

Bytes CheckpointSeals::SignedBytes(const Digest& head) const {
  ByteWriter out;
  // The domain string keeps a signature from being valid for anything else that the key signs.
  out.String("crowdsurf checkpoint 1");
  out.String(job_);
  out.Raw(head.view());
  return out.Take();
}

Status CheckpointSeals::Write(const std::string& path, const Digest& head,
                              const std::string& writer) const {
  ASSIGN_OR_RETURN(const std::string chain,
                   ReadFile((identity_.directory() / "cert.pem").string(), kMaxChain));
  ByteWriter out;
  out.U64(kMagic);
  out.String(chain);
  out.Raw(identity_.Sign(SignedBytes(head)));
  const Bytes seal = out.Take();
  return WriteFileAtomically(NameOf(path), {seal}, {.durable = Durable::kYes, .writer = writer});
}

bool CheckpointSeals::IsSealed(const std::string& path, const Digest& head) const {
  const std::optional<Bytes> seal = ReadSeal(NameOf(path));
  if (!seal) return false;
  ByteReader in(*seal);
  const uint64_t magic = in.U64();
  const std::string chain = in.String(kMaxChain);
  const ByteView signed_by = in.Raw(sizeof(dht::Signature));
  if (magic != kMagic || !in.Done()) return false;
  dht::Signature signature;
  std::copy(signed_by.begin(), signed_by.end(), signature.begin());
  const auto ca = ReadFile((identity_.directory() / "ca.pem").string());
  const auto key = dht::PublicKeyOfCertificate(chain);
  return ca.ok() && key.ok() && dht::VerifyPastCertificate(chain, *ca, job_).ok() &&
         identity_.Verify(*key, SignedBytes(head), signature);
}

}  // namespace crowdsurf::worker
