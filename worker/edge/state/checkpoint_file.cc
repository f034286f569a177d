#include "worker/edge/state/checkpoint_file.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/digest.h"
#include "base/edge/files.h"
#include "base/sha256_stream.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kCheckpointMagic = 0x3154504b43465343;  // the bytes "CSFCKPT1"
constexpr uint32_t kVersion = 2;
constexpr uint32_t kVersionWithVelocity = 3;  // its hash ends the header; it follows the average
constexpr uint32_t kVersionWithLedger = 4;    // then whether there is a velocity, and the ledger
constexpr uint64_t kMaxHeader = 64 << 20;     // 65,536 tensors with long names are 25 MB
constexpr uint64_t kPieceBytes = 1 << 20;     // read at once; of memory that is hashed in the cache
constexpr std::string_view kPrefix = "checkpoint-", kSuffix = ".crowdsurf";
constexpr int kDigits = 20;  // hold every number

// magic u64, version u32, header length u64, SHA-256 of the header; then header, average, opaque.
constexpr size_t kPreambleBytes = 8 + 4 + 8 + 32;

Bytes EncodeHeader(const CheckpointHeader& h) {
  ByteWriter out;
  out.String(h.info.job);
  out.U64(h.info.averaging.value());
  out.Raw(h.info.committed.view());
  out.F64(h.info.job_samples);
  out.F64(h.info.job_seconds);
  out.U64(h.info.view_epoch);
  out.Raw(h.info.schema.view());
  out.Blob(EncodeLinkTable(h.info.tensors));
  out.U64(h.info.elements);
  out.U64(h.info.opaque_bytes);
  out.Raw(h.average_hash.view());
  out.Raw(h.opaque_hash.view());
  if (!h.info.ledger.empty()) out.Bool(h.velocity_hash.has_value());
  if (h.velocity_hash) out.Raw(h.velocity_hash->view());
  if (!h.info.ledger.empty()) out.Blob(h.info.ledger);
  return out.Take();
}

Digest ReadDigest(ByteReader& in) {
  return Digest::From(in.Raw(Digest::kBytes)).value_or(Digest());
}

std::optional<CheckpointHeader> DecodeHeader(ByteView bytes, uint32_t version) {
  ByteReader in(bytes);
  CheckpointHeader h;
  h.info.job = in.String(1024);
  h.info.averaging = AveragingId(in.U64());
  h.info.committed = ReadDigest(in);
  h.info.job_samples = in.F64();
  h.info.job_seconds = in.F64();
  h.info.view_epoch = in.U64();
  h.info.schema = ReadDigest(in);
  auto tensors = DecodeLinkTable(in.Blob(kMaxHeader));
  h.info.elements = in.U64();
  h.info.opaque_bytes = in.U64();
  h.average_hash = ReadDigest(in);
  h.opaque_hash = ReadDigest(in);
  const bool ledger = version == kVersionWithLedger;
  if (ledger ? in.Bool() : version == kVersionWithVelocity) h.velocity_hash = ReadDigest(in);
  if (ledger) {
    const ByteView leases = in.Blob(kMaxHeader);
    h.info.ledger.assign(leases.begin(), leases.end());
    if (leases.empty()) in.Fail();
  }
  // What a file says of its sizes is bounded before anything is computed from it.
  if (!tensors || !in.Done() || h.info.elements > kMaxLinkElements ||
      h.info.opaque_bytes > (1ULL << 40) || !(h.info.job_seconds >= 0)) {
    return std::nullopt;
  }
  h.info.tensors = *std::move(tensors);
  return h;
}

Status CutShort(uint64_t bytes, uint64_t whole) {
  return absl::DataLossError(absl::StrCat("is cut short: it has ", bytes, " of ", whole, " bytes"));
}

Status Broken(const char* what) {
  return absl::DataLossError(absl::StrCat("is broken: the hash of its ", what, " does not verify"));
}

// The bytes from `offset` on, as many as `into` has. DataLoss: the file ends before.
Status ReadAt(int fd, uint64_t offset, std::span<uint8_t> into) {
  while (!into.empty()) {
    const ssize_t n = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::DataLossError(absl::StrCat("cannot be read: ", std::strerror(errno)));
    if (n == 0) return absl::DataLossError("is cut short: it has become shorter while it was read");
    into = into.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

struct Preamble {
  uint32_t version = 0;
  uint64_t header_bytes = 0;
  Digest header_hash;
};

StatusOr<Preamble> ReadPreamble(int fd, uint64_t size) {
  std::array<uint8_t, kPreambleBytes> bytes;
  const uint64_t there = std::min<uint64_t>(size, kPreambleBytes);
  RETURN_IF_ERROR(ReadAt(fd, 0, std::span(bytes).first(there)));
  ByteReader in(ByteView(bytes).first(there));
  const uint64_t magic = in.U64();
  Preamble preamble;
  preamble.version = in.U32();
  preamble.header_bytes = in.U64();
  preamble.header_hash = ReadDigest(in);
  if (size >= sizeof magic && magic != kCheckpointMagic)
    return absl::InvalidArgumentError("is no checkpoint");
  // Done: the file has a whole preamble, so the subtraction below does not wrap.
  if (!in.Done()) return CutShort(size, kPreambleBytes);
  if (preamble.version < kVersion || preamble.version > kVersionWithLedger) {
    return absl::InvalidArgumentError(
        absl::StrCat("is of version ", preamble.version, ", which this program does not read"));
  }
  if (preamble.header_bytes > kMaxHeader) return Broken("header");
  if (preamble.header_bytes > size - kPreambleBytes)
    return CutShort(size, kPreambleBytes + preamble.header_bytes);
  return preamble;
}

}  // namespace

CheckpointHead EncodeCheckpointHead(const CheckpointHeader& header) {
  const Bytes encoded = EncodeHeader(header);
  const Digest hash = Sha256(encoded);
  ByteWriter out;
  out.U64(kCheckpointMagic);
  out.U32(!header.info.ledger.empty() ? kVersionWithLedger
          : header.velocity_hash      ? kVersionWithVelocity
                                      : kVersion);
  out.U64(encoded.size());
  // The header holds the hashes of all that follows, so each byte of the file is under one.
  out.Raw(hash.view());
  out.Raw(encoded);
  return {out.Take(), hash};
}

StatusOr<CheckpointFile> CheckpointFile::Open(const std::string& path) {
  OwnedFd file(OpenSharedFile(path));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0)
    return absl::NotFoundError("is no file that can be read");
  const auto size = static_cast<uint64_t>(info.st_size);
  ASSIGN_OR_RETURN(const Preamble preamble, ReadPreamble(file.get(), size));
  Bytes header(preamble.header_bytes);
  RETURN_IF_ERROR(ReadAt(file.get(), kPreambleBytes, header));
  if (Sha256(header) != preamble.header_hash) return Broken("header");
  auto decoded = DecodeHeader(header, preamble.version);
  if (!decoded) return Broken("header");
  // At most kMaxLinkElements (DecodeHeader), so the product does not overflow.
  const uint64_t average_bytes = decoded->info.elements * sizeof(float);
  const uint64_t velocity_bytes = decoded->velocity_hash ? average_bytes : 0;
  const uint64_t begin = kPreambleBytes + preamble.header_bytes;
  const uint64_t whole = begin + average_bytes + velocity_bytes + decoded->info.opaque_bytes;
  if (size < whole) return CutShort(size, whole);
  if (size > whole) return absl::DataLossError("is broken: it is longer than it says");
  return CheckpointFile(std::move(file), *std::move(decoded), preamble.header_hash, begin);
}

uint64_t CheckpointFile::opaque_begin() const {
  return begin_ + average_bytes() + (header_.velocity_hash ? average_bytes() : 0);
}

// Copied first, then hashed: others can write to the file meanwhile.
Status CheckpointFile::ReadFloats(uint64_t offset, std::span<float> into, const Digest& hash,
                                  const char* what) const {
  CHECK_EQ(into.size(), header_.info.elements);
  const std::span bytes(reinterpret_cast<uint8_t*>(into.data()), into.size_bytes());
  RETURN_IF_ERROR(ReadAt(file_.get(), offset, bytes));
  return Sha256(bytes) == hash ? absl::OkStatus() : Broken(what);
}

Status CheckpointFile::ReadAverage(std::span<float> into) const {
  return ReadFloats(begin_, into, header_.average_hash, "average");
}

Status CheckpointFile::ReadVelocity(std::span<float> into) const {
  CHECK(header_.velocity_hash.has_value());
  return ReadFloats(begin_ + average_bytes(), into, *header_.velocity_hash, "velocity");
}

Status CheckpointFile::ReadPart(uint64_t offset, uint64_t bytes, const Digest& hash,
                                const char* what, const Sink& sink) const {
  Bytes piece(std::min(bytes, kPieceBytes));
  Sha256Stream stream;
  for (uint64_t at = 0; at < bytes; at += piece.size()) {
    piece.resize(std::min(bytes - at, kPieceBytes));
    RETURN_IF_ERROR(ReadAt(file_.get(), offset + at, piece));
    stream.Add(piece);
    if (sink) RETURN_IF_ERROR(sink(at, piece));
  }
  return stream.Take() == hash ? absl::OkStatus() : Broken(what);
}

Status CheckpointFile::ReadOpaque(const Sink& sink) const {
  return ReadPart(opaque_begin(), header_.info.opaque_bytes, header_.opaque_hash, "opaque state",
                  sink);
}

Status CheckpointFile::Verify() const {
  RETURN_IF_ERROR(ReadPart(begin_, average_bytes(), header_.average_hash, "average", nullptr));
  if (header_.velocity_hash) {
    RETURN_IF_ERROR(ReadPart(begin_ + average_bytes(), average_bytes(), *header_.velocity_hash,
                             "velocity", nullptr));
  }
  return ReadOpaque(nullptr);
}

StatusOr<VerifiedCheckpoint> VerifyCheckpoint(const std::string& path) {
  const auto failed = [&](const Status& why) {
    return Status(why.code(), absl::StrCat(path, " ", why.message()));
  };
  const auto file = CheckpointFile::Open(path);
  if (absl::IsNotFound(file.status()))
    return absl::NotFoundError(absl::StrCat("there is no file ", path));
  if (!file.ok()) return failed(file.status());
  if (const Status status = file->Verify(); !status.ok()) return failed(status);
  VerifiedCheckpoint found{.info = file->info(), .average = {}};
  found.average.resize(found.info.elements);
  // The copy is verified once more: the file may have changed between the two.
  if (const Status status = file->ReadAverage(found.average); !status.ok()) return failed(status);
  return found;
}

std::string CheckpointName(AveragingId averaging, std::string_view lineage) {
  char number[kDigits + 1];
  std::snprintf(number, sizeof number, "%0*llu", kDigits,
                static_cast<unsigned long long>(averaging.value()));
  std::string name = std::string(kPrefix) + number;
  if (!lineage.empty()) name.append("-").append(lineage);
  return name.append(kSuffix);
}

std::string_view LineageOfCheckpoint(std::string_view name) {
  constexpr size_t kBefore = kPrefix.size() + kDigits + 1;
  if (name.size() <= kBefore + kSuffix.size() || name[kBefore - 1] != '-') return {};
  return name.substr(kBefore, name.size() - kBefore - kSuffix.size());
}

std::vector<std::string> CheckpointsIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const dir = ::opendir(folder.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) names.emplace_back(name);
  }
  ::closedir(dir);
  std::sort(names.rbegin(), names.rend());
  if (names.size() > kMaxCheckpointFiles) names.resize(kMaxCheckpointFiles);
  return names;
}

bool IsTemporaryCheckpoint(std::string_view name) {
  return name.starts_with(kPrefix) && name.ends_with(".new");
}

}  // namespace crowdsurf::worker
