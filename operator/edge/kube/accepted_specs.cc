#include "operator/edge/kube/accepted_specs.h"

#include <algorithm>
#include <utility>

#include "operator/core/job/json_path.h"
#include "operator/core/job/ownership.h"
#include "operator/core/pods/pod_builder.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr Duration kKeepAgain = Seconds(10);  // after a try that failed
constexpr size_t kMaxKept = 2;                // of a job: the one that runs and the one before

std::string RevisionsOf(const TrainingJob& job) {
  return "/apis/apps/v1/namespaces/" + job.space + "/controllerrevisions";
}

int64_t RevisionOf(const json& object) {
  const json* revision = Member(&object, "revision");
  return revision != nullptr && revision->is_number_integer() ? revision->get<int64_t>() : 0;
}

}  // namespace

AcceptedSpecs::AcceptedSpecs(KubeClient& client, std::function<WallTime()> clock, Logger log)
    : client_(client), clock_(std::move(clock)), log_(log) {}

StatusOr<KubeList> AcceptedSpecs::ListOf(const TrainingJob& job) {
  ASSIGN_OR_RETURN(KubeList list, client_.List(RevisionsOf(job) + "?labelSelector=" +
                                               std::string(kJobUidLabel) + "%3D" + job.uid));
  std::erase_if(list.items, [&](const json& revision) {
    return OwnershipOf(revision, job) != Ownership::kOurs;
  });
  std::sort(list.items.begin(), list.items.end(), [](const json& a, const json& b) {
    return RevisionOf(a) > RevisionOf(b);  // the newest first
  });
  return list;
}

// The spec is taken as the server has it: what the operator holds of a job has defaults filled in.
Status AcceptedSpecs::Write(const TrainingJob& job) {
  const std::string path = "/apis/crowdsurf.io/v1alpha1/namespaces/" + job.space + "/trainingjobs/";
  ASSIGN_OR_RETURN(const json object, client_.Get(path + job.name));
  const json* spec = Member(&object, "spec");
  const json* generation = At(object, "metadata.generation");
  // The cache may be behind the server, and a revision must hold the spec of its own generation.
  if (spec == nullptr || generation == nullptr || *generation != job.generation ||
      TextAt(object, "metadata.uid") != job.uid) {
    return absl::AbortedError("its spec has changed meanwhile");
  }
  const json revision = BuildSpecRevision(job, *spec);
  Status made = client_.Create(RevisionsOf(job), revision).status();
  if (!absl::IsAlreadyExists(made)) return made;
  const std::string name = TextAt(revision, "metadata.name");
  ASSIGN_OR_RETURN(const json found, client_.Get(RevisionsOf(job) + "/" + name));
  if (OwnershipOf(found, job) == Ownership::kOurs) return absl::OkStatus();  // before a crash
  return absl::AlreadyExistsError("ControllerRevision/" + name + " is " + OwnerText(found));
}

Status AcceptedSpecs::Prune(const TrainingJob& job) {
  ASSIGN_OR_RETURN(const KubeList list, ListOf(job));
  Status first;
  for (size_t i = kMaxKept; i < list.items.size(); ++i) {
    const json& old = list.items[i];
    // The uid protects an object that was made under this name after the list.
    const Status gone = client_.Delete(RevisionsOf(job) + "/" + TextAt(old, "metadata.name"),
                                       {{"preconditions", {{"uid", TextAt(old, "metadata.uid")}}}});
    if (!absl::IsNotFound(gone)) first.Update(gone);
  }
  return first;
}

AcceptedSpecs::Kept AcceptedSpecs::Keep(const TrainingJob& job, int64_t kept) {
  runs_.erase(job.uid);
  // The status says that it is kept: most turns end here, without a request.
  if (kept == job.generation) return {kept};
  Known& known = known_[job.uid];
  known.generation = std::max(known.generation, kept);
  if (known.generation == job.generation) return {known.generation};
  if (known.tried == job.generation && clock_() < known.not_before)
    return {known.generation, known.not_before};
  known.tried = job.generation;
  if (const Status written = Write(job); !written.ok()) {
    // The job runs on. Only a faulty edit would need the spec that is not kept yet.
    log_.Warning("a spec is not kept", {{"job", job.name}, {"why", written.ToString()}});
    known.not_before = clock_() + kKeepAgain;
    return {known.generation, known.not_before};
  }
  known.generation = job.generation;
  // Before the first generation there is nothing to remove, and most jobs have no other. What could
  // not be removed goes with the next edit.
  const Status pruned = job.generation > 1 ? Prune(job) : absl::OkStatus();
  if (!pruned.ok()) log_.Warning("old specs stay", {{"job", job.name}, {"why", pruned.ToString()}});
  return {known.generation};
}

StatusOr<TrainingJob> AcceptedSpecs::LastOf(const TrainingJob& job) {
  auto known = runs_.find(job.uid);
  if (known == runs_.end()) {
    ASSIGN_OR_RETURN(const KubeList list, ListOf(job));
    for (const json& revision : list.items) {
      const json* spec = At(revision, "data.spec");
      auto read = spec == nullptr ? std::nullopt : ReadSpec(*spec);
      if (!read) continue;  // not of a version that this one can read
      TrainingJob accepted = job;
      accepted.spec = *std::move(read);
      accepted.generation = RevisionOf(revision);
      known = runs_.emplace(job.uid, std::move(accepted)).first;
      break;
    }
  }
  if (known == runs_.end()) return absl::NotFoundError("no spec of this job was ever accepted");
  TrainingJob accepted = known->second;
  // The spec is of before, and whether the job is going is of now.
  accepted.deleting = job.deleting;
  return accepted;
}

void AcceptedSpecs::Forget(const std::string& job_uid) {
  known_.erase(job_uid);
  runs_.erase(job_uid);
}

}  // namespace crowdsurf::controller
