#include "worker/edge/state/model_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "base/edge/files.h"
#include "worker/core/link/safetensors.h"

namespace crowdsurf::worker {
namespace {

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

Status WriteModel(const std::string& path, const std::string& writer, const CheckpointInfo& info,
                  std::span<const float> values) {
  const Bytes header = EncodeSafetensorsHeader(
      info.tensors, {{"job", info.job}, {"averaging", absl::StrCat(info.averaging.value())}});
  std::vector<ByteView> parts = ModelData(info.tensors, values);
  parts.insert(parts.begin(), header);
  return WriteFileAtomically(path, parts, {.durable = Durable::kYes, .writer = writer});
}

}  // namespace

StatusOr<bool> WriteModelFile(CheckpointStore& store, const CheckpointInfo& info,
                              std::span<const float> values) {
  const std::string path = absl::StrCat(store.folder(), "/", kModelFile);
  const FolderLock lock(path);
  // Under the lock: who seals a newer one later also writes its model later.
  const std::optional<VerifiedCheckpoint> newer = store.NewerThan(info);
  RETURN_IF_ERROR(newer ? WriteModel(path, store.writer(), newer->info, newer->average)
                        : WriteModel(path, store.writer(), info, values));
  return !newer.has_value();
}

}  // namespace crowdsurf::worker
