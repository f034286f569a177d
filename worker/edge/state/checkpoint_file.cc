#include "worker/edge/state/checkpoint_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/digest.h"
#include "base/edge/files.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kCheckpointMagic = 0x3154504b43465343;  // the bytes "CSFCKPT1"
constexpr uint32_t kVersion = 2;
constexpr uint32_t kVersionWithVelocity = 3;  // its hash ends the header; it follows the average
constexpr uint32_t kVersionWithLedger = 4;    // then whether there is a velocity, and the ledger
constexpr uint64_t kMaxHeader = 64 << 20;     // 65,536 tensors with long names are 25 MB
constexpr std::string_view kPrefix = "checkpoint-", kSuffix = ".crowdsurf";

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

}  // namespace

Bytes EncodeCheckpointHead(const CheckpointHeader& header) {
  const Bytes encoded = EncodeHeader(header);
  ByteWriter out;
  out.U64(kCheckpointMagic);
  out.U32(!header.info.ledger.empty() ? kVersionWithLedger
          : header.velocity_hash      ? kVersionWithVelocity
                                      : kVersion);
  out.U64(encoded.size());
  // The header holds the hashes of all that follows, so each byte of the file is under one.
  out.Raw(Sha256(encoded).view());
  out.Raw(encoded);
  return out.Take();
}

StatusOr<CheckpointContents> ReadCheckpointHead(ByteView file) {
  ByteReader in(file.first(std::min(file.size(), kPreambleBytes)));
  const uint64_t magic = in.U64();
  const uint32_t version = in.U32();
  const uint64_t header_bytes = in.U64();
  const Digest header_hash = ReadDigest(in);
  if (file.size() >= sizeof magic && magic != kCheckpointMagic)
    return absl::InvalidArgumentError("is no checkpoint");
  // Done: the file has a whole preamble, so the subtraction below does not wrap.
  if (!in.Done()) return CutShort(file.size(), kPreambleBytes);
  if (version < kVersion || version > kVersionWithLedger) {
    return absl::InvalidArgumentError(
        absl::StrCat("is of version ", version, ", which this program does not read"));
  }
  if (header_bytes > kMaxHeader) return Broken("header");
  if (header_bytes > file.size() - kPreambleBytes)
    return CutShort(file.size(), kPreambleBytes + header_bytes);
  const ByteView header = file.subspan(kPreambleBytes, header_bytes);
  if (Sha256(header) != header_hash) return Broken("header");
  auto decoded = DecodeHeader(header, version);
  if (!decoded) return Broken("header");
  const ByteView rest = file.subspan(kPreambleBytes + header_bytes);
  // At most kMaxLinkElements (DecodeHeader), so the product does not overflow.
  const uint64_t average_bytes = decoded->info.elements * sizeof(float);
  const uint64_t velocity_bytes = decoded->velocity_hash ? average_bytes : 0;
  const uint64_t rest_bytes = average_bytes + velocity_bytes + decoded->info.opaque_bytes;
  if (rest.size() < rest_bytes)
    return CutShort(file.size(), kPreambleBytes + header_bytes + rest_bytes);
  if (rest.size() > rest_bytes) return absl::DataLossError("is broken: it is longer than it says");
  return CheckpointContents{*std::move(decoded), rest.first(average_bytes),
                            rest.subspan(average_bytes, velocity_bytes),
                            rest.subspan(average_bytes + velocity_bytes)};
}

MappedFile::MappedFile(const std::string& path) {
  const int fd = OpenSharedFile(path);
  struct stat info {};
  if (fd >= 0 && ::fstat(fd, &info) == 0 && info.st_size > 0) {
    void* base = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (base != MAP_FAILED) {
      bytes_ = {static_cast<const uint8_t*>(base), static_cast<size_t>(info.st_size)};
    }
  }
  if (fd >= 0) ::close(fd);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

StatusOr<VerifiedCheckpoint> VerifyCheckpoint(const std::string& path) {
  const int fd = OpenSharedFile(path);
  if (fd < 0) return absl::NotFoundError(absl::StrCat("there is no file ", path));
  ::close(fd);
  const MappedFile file(path);
  const auto failed = [&](const Status& why) {
    return Status(why.code(), absl::StrCat(path, " ", why.message()));
  };
  auto contents = ReadCheckpointHead(file.bytes());
  if (!contents.ok()) return failed(contents.status());
  const CheckpointHeader& header = contents->header;
  VerifiedCheckpoint found;
  found.average.resize(header.info.elements);
  // Copied first, then hashed: others can write to the file while it is mapped.
  std::memcpy(found.average.data(), contents->average.data(), contents->average.size());
  const ByteView copied(reinterpret_cast<const uint8_t*>(found.average.data()),
                        contents->average.size());
  if (Sha256(copied) != header.average_hash) return failed(Broken("average"));
  if (header.velocity_hash && Sha256(contents->velocity) != *header.velocity_hash)
    return failed(Broken("velocity"));
  if (Sha256(contents->opaque) != header.opaque_hash) return failed(Broken("opaque state"));
  found.info = std::move(contents->header.info);
  return found;
}

std::string CheckpointName(AveragingId averaging) {
  char name[64];  // twenty digits hold every number
  std::snprintf(name, sizeof name, "%s%020llu%s", kPrefix.data(),
                static_cast<unsigned long long>(averaging.value()), kSuffix.data());
  return name;
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
  return names;
}

bool IsTemporaryCheckpoint(std::string_view name) {
  return name.starts_with(kPrefix) && name.ends_with(".new");
}

}  // namespace crowdsurf::worker
