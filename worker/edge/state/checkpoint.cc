#include "worker/edge/state/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/check.h"
#include "base/digest.h"
#include "base/edge/files.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kCheckpointMagic = 0x3154504b43465343;  // the bytes "CSFCKPT1"
constexpr uint32_t kVersion = 2;
constexpr uint32_t kVersionWithVelocity = 3;  // its hash ends the header; it follows the average
constexpr uint64_t kMaxHeader = 64 << 20;     // 65,536 tensors with long names are 25 MB
constexpr std::string_view kPrefix = "checkpoint-", kSuffix = ".crowdsurf";
constexpr time_t kStaleSeconds = 600;  // a temporary file so old belongs to a writer that died

// magic u64, version u32, header length u64, SHA-256 of the header; then header, average, opaque.
constexpr size_t kPreambleBytes = 8 + 4 + 8 + 32;

struct Header {
  CheckpointInfo info;
  Digest average_hash, opaque_hash;
  std::optional<Digest> velocity_hash;
};

Bytes EncodeHeader(const Header& h) {
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
  if (h.velocity_hash) out.Raw(h.velocity_hash->view());
  return out.Take();
}

Digest ReadDigest(ByteReader& in) {
  return Digest::From(in.Raw(Digest::kBytes)).value_or(Digest());
}

std::optional<Header> DecodeHeader(ByteView bytes, uint32_t version) {
  ByteReader in(bytes);
  Header h;
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
  if (version == kVersionWithVelocity) h.velocity_hash = ReadDigest(in);
  // What a file says of its sizes is bounded before anything is computed from it.
  if (!tensors || !in.Done() || h.info.elements > kMaxLinkElements ||
      h.info.opaque_bytes > (1ULL << 40) || !(h.info.job_seconds >= 0)) {
    return std::nullopt;
  }
  h.info.tensors = *std::move(tensors);
  return h;
}

// A whole file, mapped read-only: private memory does not grow with the model.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = OpenSharedFile(path);
    struct stat info {};
    if (fd >= 0 && ::fstat(fd, &info) == 0 && info.st_size > 0) {
      void* base =
          ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (base != MAP_FAILED) {
        bytes_ = {static_cast<const uint8_t*>(base), static_cast<size_t>(info.st_size)};
      }
    }
    if (fd >= 0) ::close(fd);
  }
  MappedFile(const MappedFile&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
  }
  ByteView bytes() const { return bytes_; }

 private:
  ByteView bytes_;
};

ByteView FloatBytes(std::span<const float> v) {
  return {reinterpret_cast<const uint8_t*>(v.data()), v.size_bytes()};
}

Counter& Writes(MetricRegistry& metrics, const char* result) {
  return metrics.AddCounter("crowdsurf_checkpoint_writes_total", "Checkpoints written, by result.",
                            {{"result", result}});
}

struct Contents {
  Header header;
  ByteView average, velocity, opaque;  // not verified

  // What the file says of itself, if that verifies.
  static std::optional<Contents> Of(ByteView file) {
    ByteReader in(file.first(std::min(file.size(), kPreambleBytes)));
    const uint64_t magic = in.U64();
    const uint32_t version = in.U32();
    const uint64_t header_bytes = in.U64();
    const Digest header_hash = ReadDigest(in);
    // Done: the file has a whole preamble, so the subtraction below does not wrap.
    if (!in.Done() || magic != kCheckpointMagic ||
        (version != kVersion && version != kVersionWithVelocity) || header_bytes > kMaxHeader ||
        header_bytes > file.size() - kPreambleBytes) {
      return std::nullopt;
    }
    const ByteView header = file.subspan(kPreambleBytes, header_bytes);
    if (Sha256(header) != header_hash) return std::nullopt;
    auto decoded = DecodeHeader(header, version);
    if (!decoded) return std::nullopt;
    const ByteView rest = file.subspan(kPreambleBytes + header_bytes);
    // At most kMaxLinkElements (DecodeHeader), so the product does not overflow.
    const uint64_t average_bytes = decoded->info.elements * sizeof(float);
    const uint64_t velocity_bytes = decoded->velocity_hash ? average_bytes : 0;
    if (rest.size() != average_bytes + velocity_bytes + decoded->info.opaque_bytes)
      return std::nullopt;
    return Contents{*std::move(decoded), rest.first(average_bytes),
                    rest.subspan(average_bytes, velocity_bytes),
                    rest.subspan(average_bytes + velocity_bytes)};
  }
};

// False: the file does not verify. No room for the opaque state: it is left out.
bool Copy(const Contents& contents, std::span<float> average,
          const CheckpointStore::MakeRoom& make_room, const Logger& log, FoundCheckpoint& found) {
  // Copied first, then hashed: others can write to the file while it is mapped.
  std::memcpy(average.data(), contents.average.data(), contents.average.size());
  if (Sha256(FloatBytes(average)) != contents.header.average_hash) return false;
  if (contents.header.velocity_hash) {
    found.velocity = std::make_shared<std::vector<float>>(average.size());
    std::memcpy(found.velocity->data(), contents.velocity.data(), contents.velocity.size());
    if (Sha256(FloatBytes(*found.velocity)) != *contents.header.velocity_hash) return false;
  }
  if (contents.opaque.empty()) return contents.header.opaque_hash == Sha256({});
  auto room = make_room(contents.opaque.size());
  const Status kept = room.ok() ? (*room)->Write(0, contents.opaque) : room.status();
  if (!kept.ok()) {
    log.Warning("a checkpoint's opaque state is left out", {{"error", kept.ToString()}});
    return true;
  }
  if (Sha256((*room)->bytes()) != contents.header.opaque_hash) return false;
  found.opaque = HeldOpaque{*std::move(room), contents.header.opaque_hash};
  return true;
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, std::string writer, size_t retain, Logger log,
                                 MetricRegistry& metrics)
    : folder_(std::move(folder)),
      writer_(std::move(writer)),
      retain_(retain),
      log_(log),
      written_(Writes(metrics, "written")),
      failed_(Writes(metrics, "failed")),
      unreadable_(metrics.AddCounter("crowdsurf_checkpoint_unreadable_total",
                                     "Checkpoints whose hash did not verify when restoring.")) {
  CHECK_GE(retain_, 1u);
}

Status CheckpointStore::Write(CheckpointInfo info, const StateValues& state, ByteView opaque) {
  info.elements = state.average.size();
  info.opaque_bytes = opaque.size();
  Header header{std::move(info), Sha256(FloatBytes(state.average)), Sha256(opaque), {}};
  const bool velocity = !state.velocity.empty();
  if (velocity) header.velocity_hash = Sha256(FloatBytes(state.velocity));
  const Bytes encoded = EncodeHeader(header);
  ByteWriter preamble;
  preamble.U64(kCheckpointMagic);
  preamble.U32(velocity ? kVersionWithVelocity : kVersion);
  preamble.U64(encoded.size());
  // The header holds the hashes of all that follows, so each byte of the file is under one.
  preamble.Raw(Sha256(encoded).view());
  char name[64];  // twenty digits hold every number, and names sort as numbers do
  std::snprintf(name, sizeof name, "%s%020llu%s", kPrefix.data(),
                static_cast<unsigned long long>(header.info.averaging.value()), kSuffix.data());
  Status status = WriteFileAtomically(
      folder_ + "/" + name,
      {preamble.bytes(), encoded, FloatBytes(state.average), FloatBytes(state.velocity), opaque},
      {.durable = Durable::kYes, .writer = writer_});
  if (!status.ok()) {
    failed_.Add();
    return status;
  }
  written_.Add();
  // After the write: a failure leaves more checkpoints, never fewer than are to be kept.
  Prune();
  return absl::OkStatus();
}

std::vector<std::string> CheckpointStore::NumbersDescending() const {
  std::vector<std::string> names;
  DIR* const dir = ::opendir(folder_.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) names.emplace_back(name);
  }
  ::closedir(dir);
  std::sort(names.rbegin(), names.rend());
  return names;
}

void CheckpointStore::Prune() {
  const std::vector<std::string> names = NumbersDescending();
  for (size_t i = retain_; i < names.size(); ++i) ::unlink((folder_ + "/" + names[i]).c_str());
  DIR* const dir = ::opendir(folder_.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    struct stat info {};
    // By its age: the writer may be of another machine, where nobody can ask whether it lives.
    if (name.starts_with(kPrefix) && name.ends_with(".new") &&
        ::lstat((folder_ + "/" + name).c_str(), &info) == 0 &&
        std::time(nullptr) - info.st_mtime > kStaleSeconds) {
      ::unlink((folder_ + "/" + name).c_str());
    }
  }
  ::closedir(dir);
}

StatusOr<FoundCheckpoint> CheckpointStore::Restore(const CheckpointWanted& wanted,
                                                   std::span<float> average,
                                                   const MakeRoom& make_room) {
  CHECK_EQ(average.size(), wanted.elements);
  for (const std::string& name : NumbersDescending()) {
    const std::string path = folder_ + "/" + name;
    const MappedFile file(path);
    const auto contents = Contents::Of(file.bytes());
    FoundCheckpoint found{.path = path, .info = {}, .opaque = {}, .velocity = {}};
    // Several jobs may share a folder: another's file is neither wanted nor broken.
    if (contents && contents->header.info.job != wanted.job) continue;
    if (contents) {
      found.info = contents->header.info;
      if (found.info.schema != wanted.schema || found.info.elements != wanted.elements) {
        return absl::FailedPreconditionError(
            absl::StrCat(path, " is of another model and is left alone"));
      }
      if (Copy(*contents, average, make_room, log_, found)) return found;
    }
    unreadable_.Add();
    log_.Warning("checkpoint does not verify, looking for an older one", {{"path", path}});
  }
  return absl::NotFoundError(absl::StrCat("no checkpoint of job ", wanted.job, " in ", folder_));
}

}  // namespace crowdsurf::worker
