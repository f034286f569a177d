#include "cli/export_model.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/edge/files.h"
#include "cli/run/state_dir.h"
#include "worker/core/link/safetensors.h"
#include "worker/edge/state/checkpoint_file.h"

namespace crowdsurf::cli {
namespace {

namespace fs = std::filesystem;
using worker::CheckpointInfo;
using worker::VerifiedCheckpoint;

constexpr char kModelFile[] = "model.safetensors";

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Paths of the folder's checkpoints, newest first; those that say that they are another job's are
// left out. An empty `job` stands for any.
std::vector<std::string> Candidates(const std::string& folder, const std::string& job) {
  std::vector<std::string> paths;
  for (const std::string& name : worker::CheckpointsIn(folder)) {
    const std::string path = folder + "/" + name;
    const worker::MappedFile file(path);
    const auto head = worker::ReadCheckpointHead(file.bytes());
    if (job.empty() || !head.ok() || head->header.info.job == job) paths.push_back(path);
  }
  return paths;
}

// The newest and no other: what is older is another model, which the user may choose.
StatusOr<VerifiedCheckpoint> Newest(const std::string& folder, const std::string& job,
                                    std::string& path) {
  const std::vector<std::string> paths = Candidates(folder, job);
  if (paths.empty()) {
    const std::string model = folder + "/" + kModelFile;
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", folder,
                                            IsThere(model) ? "; the job's model is " + model : ""));
  }
  path = paths.front();
  auto found = worker::VerifyCheckpoint(path);
  if (!absl::IsDataLoss(found.status()) || paths.size() < 2) return found;
  return absl::DataLossError(
      absl::StrCat(found.status().message(), "; the one before it is ", paths[1]));
}

StatusOr<VerifiedCheckpoint> Find(const ExportRequest& request, std::string& path) {
  const bool named =
      request.from.find('/') != std::string::npos || request.from.ends_with(".crowdsurf");
  if (named && !IsFolder(request.from)) {
    path = request.from;
    return worker::VerifyCheckpoint(path);
  }
  if (named) return Newest(request.from, "", path);
  const std::string state =
      request.state_dir.empty() ? DefaultStateDir(request.from) : request.state_dir;
  if (!IsFolder(state + "/checkpoint")) {
    if (!request.state_dir.empty())
      return absl::NotFoundError(state + " is not the state directory of a run");
    return NoLocalJob(request.from);
  }
  return Newest(state + "/checkpoint", request.from, path);
}

// The tensors are the average, as LayOutLink packs them.
bool Fits(const CheckpointInfo& info) {
  uint64_t end = 0;
  for (const worker::LinkTensor& tensor : info.tensors) {
    if (!tensor.shared()) continue;
    if (tensor.offset != end) return false;
    end += tensor.elements() * sizeof(float);
  }
  return end == info.elements * sizeof(float);
}

}  // namespace

StatusOr<ExportedModel> ExportModel(const ExportRequest& request) {
  ExportedModel done;
  done.path = IsFolder(request.out) ? request.out + "/" + kModelFile : request.out;
  // Before the work, and never over another file.
  if (IsThere(done.path)) return absl::AlreadyExistsError(done.path + " is there already");
  ASSIGN_OR_RETURN(const VerifiedCheckpoint found, Find(request, done.checkpoint));
  const CheckpointInfo& info = found.info;
  if (!Fits(info))
    return absl::DataLossError(done.checkpoint + " is broken: its tensors are not its average");
  const Bytes header = worker::EncodeSafetensorsHeader(
      info.tensors,
      {{"format", "pt"}, {"job", info.job}, {"averaging", absl::StrCat(info.averaging.value())}});
  std::vector<ByteView> parts =
      worker::ModelData(info.tensors, {found.average.data(), found.average.size()});
  for (const ByteView part : parts) done.parameters += part.size() / sizeof(float);
  parts.insert(parts.begin(), header);
  RETURN_IF_ERROR(WriteFileAtomically(done.path, parts, {.durable = Durable::kYes}));
  done.job = info.job;
  done.averaging = info.averaging.value();
  done.job_samples = info.job_samples;
  return done;
}

}  // namespace crowdsurf::cli
