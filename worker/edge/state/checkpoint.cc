#include "worker/edge/state/checkpoint.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/digest.h"
#include "base/edge/files.h"

namespace crowdsurf::worker {
namespace {

constexpr time_t kStaleSeconds = 600;  // a temporary file so old belongs to a writer that died
// A lineage that has written nothing for so long, or for so many of its intervals, has ended.
constexpr Duration kLineageEnds = Seconds(600);
constexpr double kIntervalsToEnd = 3;

std::string_view LineageOf(std::string_view path) {
  return LineageOfCheckpoint(path.substr(path.rfind('/') + 1));
}

// Lineages other than the writer's that still write. Times of files are compared with each other:
// this machine's clock may be another one.
std::set<std::string_view> OthersThatWrite(const std::vector<std::string_view>& paths,
                                           const CheckpointBy& by) {
  std::map<std::string_view, time_t> last;
  time_t now = 0;
  for (const std::string_view path : paths) {
    struct stat info {};
    if (::lstat(std::string(path).c_str(), &info) != 0) continue;
    time_t& latest = last[LineageOf(path)];
    latest = std::max(latest, info.st_mtime);
    now = std::max(now, latest);
  }
  const double silent = std::max(kLineageEnds, by.interval * kIntervalsToEnd).seconds();
  std::set<std::string_view> others;
  for (const auto& [lineage, latest] : last) {
    const bool writes = static_cast<double>(now - latest) <= silent;
    if (writes && lineage != by.lineage && !lineage.empty()) others.insert(lineage);
  }
  return others;
}

ByteView FloatBytes(std::span<const float> v) {
  return {reinterpret_cast<const uint8_t*>(v.data()), v.size_bytes()};
}

Counter& Writes(MetricRegistry& metrics, const char* result) {
  return metrics.AddCounter("crowdsurf_checkpoint_writes_total", "Checkpoints written, by result.",
                            {{"result", result}});
}

// No room for the opaque state: it is left out.
Status Read(const CheckpointFile& file, std::span<float> average,
            const CheckpointStore::MakeRoom& make_room, const Logger& log, FoundCheckpoint& found) {
  RETURN_IF_ERROR(file.ReadAverage(average));
  if (file.header().velocity_hash) {
    found.velocity = std::make_shared<ZeroedFloats>(average.size());
    RETURN_IF_ERROR(file.ReadVelocity({found.velocity->data(), found.velocity->size()}));
  }
  if (found.info.opaque_bytes == 0) return file.ReadOpaque(nullptr);
  auto room = make_room(found.info.opaque_bytes);
  Status kept = room.status();
  const auto keep = [&](uint64_t offset, ByteView piece) {
    if (kept.ok()) kept = (*room)->Write(offset, piece);
    return absl::OkStatus();
  };
  // Also where it is left out: the whole file verifies.
  RETURN_IF_ERROR(file.ReadOpaque(keep));
  if (kept.ok()) {
    found.opaque = HeldOpaque{*std::move(room), file.header().opaque_hash};
  } else {
    log.Warning("a checkpoint's opaque state is left out", {{"error", kept.ToString()}});
  }
  return absl::OkStatus();
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, std::string writer, size_t retain, Logger log,
                                 MetricRegistry& metrics, std::optional<CheckpointSeals> seals)
    : folder_(std::move(folder)),
      writer_(std::move(writer)),
      retain_(retain),
      log_(log),
      seals_(std::move(seals)),
      written_(Writes(metrics, "written")),
      failed_(Writes(metrics, "failed")),
      unreadable_(metrics.AddCounter("crowdsurf_checkpoint_unreadable_total",
                                     "Checkpoints whose hash did not verify when restoring.")),
      unsealed_(metrics.AddCounter("crowdsurf_checkpoint_unsealed_total",
                                   "Checkpoints of the job passed over for a sealed one.")) {
  CHECK_GE(retain_, 1u);
}

Status CheckpointStore::Write(CheckpointInfo info, const StateValues& state, ByteView opaque,
                              const CheckpointBy& by) {
  info.elements = state.average.size();
  info.opaque_bytes = opaque.size();
  CheckpointHeader header{std::move(info), Sha256(FloatBytes(state.average)), Sha256(opaque), {}};
  if (!state.velocity.empty()) header.velocity_hash = Sha256(FloatBytes(state.velocity));
  const std::string path = folder_ + "/" + CheckpointName(header.info.averaging, by.lineage);
  const CheckpointHead head = EncodeCheckpointHead(header);
  // Before the file: of a crash between the two a seal is left, and no file without one.
  Seal(path, head.hash);
  Status status = WriteFileAtomically(
      path, {head.bytes, FloatBytes(state.average), FloatBytes(state.velocity), opaque},
      {.durable = Durable::kYes, .writer = writer_});
  if (!status.ok()) {
    ::unlink(CheckpointSeals::NameOf(path).c_str());
    failed_.Add();
    return status;
  }
  written_.Add();
  // After the write: a failure leaves more checkpoints, never fewer than are to be kept.
  Prune(header.info, path, by);
  RemoveStale();
  return absl::OkStatus();
}

void CheckpointStore::Seal(const std::string& path, const Digest& head) {
  if (!seals_) return;
  const Status sealed = seals_->Write(path, head, writer_);
  if (!sealed.ok()) log_.Warning("checkpoint without a seal", {{"error", sealed.ToString()}});
}

CheckpointStore::Folder CheckpointStore::Look(const std::string& job, const Digest& schema) const {
  Folder folder;
  for (const std::string& name : CheckpointsIn(folder_)) {
    Kept kept{.path = folder_ + "/" + name};
    const auto file = CheckpointFile::Open(kept.path);
    if (!file.ok()) {
      folder.unreadable.push_back(kept.path);
      continue;
    }
    // Several jobs may share a folder: another's file is neither wanted nor broken.
    if (file->info().job != job) continue;
    if (file->info().schema != schema) {
      folder.other = kept.path;
      continue;
    }
    kept.head = file->head_hash();
    kept.averaging = file->info().averaging;
    // Anybody may have written the head.
    if (std::isfinite(file->info().job_samples)) kept.job_samples = file->info().job_samples;
    kept.sealed = !seals_ || seals_->IsSealed(kept.path, kept.head);
    folder.ours.push_back(std::move(kept));
  }
  // By what the head says: anybody names files.
  std::stable_sort(folder.ours.begin(), folder.ours.end(), [](const Kept& a, const Kept& b) {
    return std::tie(a.sealed, a.job_samples, a.averaging) >
           std::tie(b.sealed, b.job_samples, b.averaging);
  });
  return folder;
}

// nullopt: it is another file by now.
std::optional<CheckpointFile> CheckpointStore::Reopen(const Kept& kept) {
  auto file = CheckpointFile::Open(kept.path);
  if (!file.ok() || file->head_hash() != kept.head) return std::nullopt;
  return *std::move(file);
}

// The one just written stays: another writer of the job may be ahead.
void CheckpointStore::Prune(const CheckpointInfo& written, const std::string& path,
                            const CheckpointBy& by) {
  const Folder folder = Look(written.job, written.schema);
  std::vector<std::string_view> sealed_paths;
  for (const Kept& kept : folder.ours)
    if (kept.sealed) sealed_paths.emplace_back(kept.path);
  const std::set<std::string_view> others =
      by.lineage.empty() ? std::set<std::string_view>() : OthersThatWrite(sealed_paths, by);
  size_t sealed = 0;
  AveragingId oldest = {};  // of those that are kept for their seal
  for (const Kept& kept : folder.ours) {
    if (kept.sealed && others.contains(LineageOf(kept.path))) continue;
    if (kept.sealed && ++sealed <= retain_) {
      oldest = kept.averaging;
      continue;
    }
    const bool superfluous = kept.sealed || (sealed >= retain_ && kept.averaging < oldest);
    if (!superfluous || kept.path == path) continue;
    ::unlink(kept.path.c_str());
    ::unlink(CheckpointSeals::NameOf(kept.path).c_str());
  }
}

void CheckpointStore::RemoveStale() {
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
  const Folder folder = Look(wanted.job, wanted.schema);
  const auto pass_over = [&](const std::string& path) {
    unreadable_.Add();
    log_.Warning("checkpoint does not verify, looking for another one", {{"path", path}});
  };
  for (const std::string& path : folder.unreadable) pass_over(path);
  std::string other = folder.other;
  for (const Kept& kept : folder.ours) {
    const auto file = Reopen(kept);
    if (file && file->info().elements != wanted.elements) {
      other = kept.path;
      continue;
    }
    if (file) {
      FoundCheckpoint found{.path = kept.path, .info = file->info(), .opaque = {}, .velocity = {}};
      const Status read = Read(*file, average, make_room, log_, found);
      if (read.ok()) {
        NotePassedOver(folder, kept);
        return found;
      }
    }
    pass_over(kept.path);
  }
  if (!other.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(other, " is of another model and is left alone"));
  }
  return absl::NotFoundError(absl::StrCat("no checkpoint of job ", wanted.job, " in ", folder_));
}

// A file with a higher number and without a seal is of an earlier life of the job, or planted.
void CheckpointStore::NotePassedOver(const Folder& folder, const Kept& taken) {
  for (const Kept& kept : folder.ours) {
    if (kept.sealed || kept.averaging <= taken.averaging) continue;
    unsealed_.Add();
    log_.Warning("a checkpoint that no agent of this job has sealed is passed over",
                 {{"path", kept.path}});
  }
}

std::optional<VerifiedCheckpoint> CheckpointStore::NewerThan(const CheckpointInfo& info) const {
  for (const Kept& kept : Look(info.job, info.schema).ours) {
    const bool further =
        std::tie(kept.job_samples, kept.averaging) > std::tie(info.job_samples, info.averaging);
    if (!kept.sealed || !further) continue;
    const auto file = Reopen(kept);
    if (!file) continue;
    VerifiedCheckpoint newer{.info = file->info(), .average = {}};
    newer.average.resize(newer.info.elements);
    if (file->ReadAverage(newer.average).ok()) return newer;
  }
  return std::nullopt;
}

}  // namespace crowdsurf::worker
