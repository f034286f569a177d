#include "worker/edge/state/model_file.h"

#include <absl/strings/numbers.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/edge/files.h"
#include "worker/core/link/safetensors.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kMaxModelHeader = 64 << 20;  // as of a checkpoint's: 65,536 tensors are 25 MB

// Held by one writer at a time, where the file system knows locks; gone with its process.
// Locks the folder, not the file: a rename replaces the file, and its lock would be on the old one.
class FolderLock {
 public:
  explicit FolderLock(const std::string& file)
      : fd_(::open(FolderOf(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ >= 0) (void)::flock(fd_, LOCK_EX);
  }
  FolderLock(const FolderLock&) = delete;
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  static std::string FolderOf(const std::string& file) {
    const size_t slash = file.rfind('/');
    return slash == std::string::npos ? "." : file.substr(0, slash + 1);
  }
  const int fd_;
};

std::string TextOf(const nlohmann::json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

// The averaging that the model of `job` at `path` holds; nullopt: there is none.
std::optional<AveragingId> AveragingOf(const std::string& path, const std::string& job) {
  const int fd = OpenSharedFile(path);
  if (fd < 0) return std::nullopt;
  uint8_t length[8];
  std::string header;
  if (::pread(fd, length, sizeof length, 0) == static_cast<ssize_t>(sizeof length)) {
    // A file of safetensors begins with a u64, little-endian, and a JSON header of so many bytes.
    const uint64_t bytes = ByteReader(ByteView(length)).U64();
    if (bytes <= kMaxModelHeader) header.resize(bytes);
    if (::pread(fd, header.data(), header.size(), sizeof length) !=
        static_cast<ssize_t>(header.size())) {
      header.clear();
    }
  }
  ::close(fd);
  const auto json = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("__metadata__")) return std::nullopt;
  const auto& metadata = json["__metadata__"];
  uint64_t averaging = 0;
  if (!metadata.is_object() || TextOf(metadata, "job") != job ||
      !absl::SimpleAtoi(TextOf(metadata, "averaging"), &averaging)) {
    return std::nullopt;
  }
  return AveragingId(averaging);
}

}  // namespace

StatusOr<bool> WriteModelFile(const std::string& path, const std::string& writer,
                              const CheckpointInfo& info, std::span<const float> values) {
  const FolderLock lock(path);
  const auto there = AveragingOf(path, info.job);
  // Of two stewards for a moment the newer average stays, whoever writes last.
  if (there && *there >= info.averaging) return false;
  const Bytes header = EncodeSafetensorsHeader(
      info.tensors, {{"job", info.job}, {"averaging", absl::StrCat(info.averaging.value())}});
  std::vector<ByteView> parts = ModelData(info.tensors, values);
  parts.insert(parts.begin(), header);
  RETURN_IF_ERROR(WriteFileAtomically(path, parts, {.durable = Durable::kYes, .writer = writer}));
  return true;
}

}  // namespace crowdsurf::worker
