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

constexpr time_t kStaleSeconds = 600;  // a temporary file so old belongs to a writer that died

ByteView FloatBytes(std::span<const float> v) {
  return {reinterpret_cast<const uint8_t*>(v.data()), v.size_bytes()};
}

Counter& Writes(MetricRegistry& metrics, const char* result) {
  return metrics.AddCounter("crowdsurf_checkpoint_writes_total", "Checkpoints written, by result.",
                            {{"result", result}});
}

// False: the file does not verify. No room for the opaque state: it is left out.
bool Copy(const CheckpointContents& contents, std::span<float> average,
          const CheckpointStore::MakeRoom& make_room, const Logger& log, FoundCheckpoint& found) {
  // Copied first, then hashed: others can write to the file while it is mapped.
  std::memcpy(average.data(), contents.average.data(), contents.average.size());
  if (Sha256(FloatBytes(average)) != contents.header.average_hash) return false;
  if (contents.header.velocity_hash) {
    found.velocity = std::make_shared<ZeroedFloats>(average.size());
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
  CheckpointHeader header{std::move(info), Sha256(FloatBytes(state.average)), Sha256(opaque), {}};
  if (!state.velocity.empty()) header.velocity_hash = Sha256(FloatBytes(state.velocity));
  Status status = WriteFileAtomically(
      folder_ + "/" + CheckpointName(header.info.averaging),
      {EncodeCheckpointHead(header), FloatBytes(state.average), FloatBytes(state.velocity), opaque},
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

void CheckpointStore::Prune() {
  const std::vector<std::string> names = CheckpointsIn(folder_);
  for (size_t i = retain_; i < names.size(); ++i) ::unlink((folder_ + "/" + names[i]).c_str());
  DIR* const dir = ::opendir(folder_.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    struct stat info {};
    // By its age: the writer may be of another machine, where nobody can ask whether it lives.
    if (IsTemporaryCheckpoint(name) && ::lstat((folder_ + "/" + name).c_str(), &info) == 0 &&
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
  for (const std::string& name : CheckpointsIn(folder_)) {
    const std::string path = folder_ + "/" + name;
    const MappedFile file(path);
    const auto contents = ReadCheckpointHead(file.bytes());
    FoundCheckpoint found{.path = path, .info = {}, .opaque = {}, .velocity = {}};
    // Several jobs may share a folder: another's file is neither wanted nor broken.
    if (contents.ok() && contents->header.info.job != wanted.job) continue;
    if (contents.ok()) {
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
