#include "cli/export_model.h"

#include <cmath>
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
    const auto file = worker::CheckpointFile::Open(path);
    if (job.empty() || !file.ok() || file->info().job == job) paths.push_back(path);
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

// The tensors are the average, as LayOutLink packs them. So each has a name of its own that a model
// file can have.
bool Fits(const CheckpointInfo& info) {
  std::vector<worker::LinkRole> averaged;
  for (const worker::LinkTensor& tensor : info.tensors)
    if (tensor.shared()) averaged.push_back(tensor.role);
  const auto laid = worker::LayOutLink(info.tensors, averaged);
  return laid.ok() && laid->tensors == info.tensors && laid->elements == info.elements;
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
  if (!std::isfinite(info.job_samples) || info.job_samples < 0)
    return absl::DataLossError(done.checkpoint + " is broken: its count of samples is no number");
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
