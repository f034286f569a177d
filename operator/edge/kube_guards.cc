// The objects beside a job's pods: its Service and CA map, and the guards that its spec asks for
// (kube_cluster.h).
#include <algorithm>
#include <utility>

#include "operator/core/json_path.h"
#include "operator/edge/kube_cluster.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

// Between two tries to follow an edit of a job's guards: the API server may be away, or refuse.
constexpr Duration kGuardsAgain = Seconds(10);
constexpr char kApply[] = "?fieldManager=crowdsurf-operator&force=true";

bool OwnedBy(const json& object, const std::string& uid) {
  const json* owners = At(object, "metadata.ownerReferences");
  return owners != nullptr && owners->is_array() &&
         std::any_of(owners->begin(), owners->end(),
                     [&](const json& owner) { return TextAt(owner, "uid") == uid; });
}

}  // namespace

// What the spec may ask for, and ask for no more. Both are tried; the first error is returned.
Status KubeCluster::EnsureGuards(const TrainingJob& job) {
  const std::string name = job.space + "/", last = "/" + GuardName(job);
  Status first;
  for (const auto& [path, object] :
       {std::pair("/apis/policy/v1/namespaces/" + name + "poddisruptionbudgets" + last,
                  BuildDisruptionBudget(job)),
        std::pair("/apis/networking.k8s.io/v1/namespaces/" + name + "networkpolicies" + last,
                  BuildNetworkPolicy(job))}) {
    first.Update(object ? client_.Patch(path + kApply, PatchType::kApply, *object).status()
                        : RemoveGuard(job, path));
  }
  return first;
}

Status KubeCluster::RemoveGuard(const TrainingJob& job, const std::string& path) {
  if (job.generation == 1) return absl::OkStatus();  // it never asked for one
  const auto found = client_.Get(path);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  if (!found.ok()) return found.status();
  if (!OwnedBy(*found, job.uid)) return absl::OkStatus();  // a user's of that name
  const std::string uid = TextAt(*found, "metadata.uid");
  const Status gone = client_.Delete(path, {{"preconditions", {{"uid", uid}}}});
  return absl::IsNotFound(gone) ? absl::OkStatus() : gone;
}

// An edit may ask for other guards; the Service and the CA map never change. What could not be
// followed is tried again in a turn of the job's a while later.
void KubeCluster::FollowEdit(const TrainingJob& job) {
  Guarded& known = guarded_[job.uid];
  if (known.generation == job.generation || job.deleting) return;
  if (options_.clock() < known.not_before) return;
  const Status status = EnsureGuards(job);
  if (status.ok()) {
    known.generation = job.generation;
  } else {
    log_.Warning("guards not changed", {{"job", job.name}, {"why", status.ToString()}});
    known.not_before = options_.clock() + kGuardsAgain;  // from the answer on: it may take long
  }
}

Status KubeCluster::EnsureObjects(const TrainingJob& job) {
  if (ensured_.contains(job.uid)) return absl::OkStatus();
  const std::string base = "/api/v1/namespaces/" + job.space;
  ASSIGN_OR_RETURN(const std::string pem, options_.trust(job));
  for (const auto& [path, object] :
       {std::pair(base + "/configmaps/" + CaMapName(job), BuildCaMap(job, pem)),
        std::pair(base + "/services/" + ServiceName(job), BuildService(job))}) {
    const auto applied = client_.Patch(path + kApply, PatchType::kApply, object);
    if (!applied.ok()) return applied.status();
  }
  RETURN_IF_ERROR(EnsureGuards(job));
  guarded_[job.uid].generation = job.generation;
  ensured_.insert(job.uid);
  return absl::OkStatus();
}

}  // namespace crowdsurf::controller
