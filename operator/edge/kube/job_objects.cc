#include "operator/edge/kube/job_objects.h"

#include <absl/strings/cord.h>

#include <utility>

#include "operator/core/job/json_path.h"
#include "operator/core/job/ownership.h"
#include "operator/core/pods/pod_builder.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

// Between two tries to follow an edit of a job's guards: the API server may be away, or refuse.
constexpr Duration kGuardsAgain = Seconds(10);
// Between two looks at an obstacle: less than a blocked job waits for its next turn.
constexpr Duration kObstacleLook = Seconds(4);
// Between two looks at what was there, in a job that makes workers: two requests each.
constexpr Duration kChildrenAgain = Seconds(300);
// Of what is in the way, as a status: the rest of its message is for people.
constexpr char kTakenUrl[] = "crowdsurf.io/taken", kLeavingUrl[] = "crowdsurf.io/leaving";

Status InTheWay(const char* url, const std::string& message) {
  Status status = absl::FailedPreconditionError(message);
  status.SetPayload(url, absl::Cord());
  return status;
}

std::optional<Obstacle> ObstacleOf(const Status& status) {
  for (const auto& [url, reason] :
       {std::pair(kTakenUrl, reason::kNameTaken), std::pair(kLeavingUrl, reason::kLeftovers)}) {
    if (status.GetPayload(url)) return Obstacle{reason, std::string(status.message())};
  }
  return std::nullopt;
}

// "Service/vic-peers"
std::string Called(const json& object) {
  return TextAt(object, "kind") + "/" + TextAt(object, "metadata.name");
}

}  // namespace

JobObjects::JobObjects(KubeClient& client,
                       std::function<StatusOr<std::string>(const TrainingJob&)> trust,
                       std::function<WallTime()> clock, Logger log)
    : client_(client), trust_(std::move(trust)), clock_(std::move(clock)), log_(log) {}

// path: of the kind's objects in the job's namespace. Whoever makes one of that name meanwhile is
// met in the second look.
Status JobObjects::Put(const TrainingJob& job, const std::string& path, const json& object) {
  const std::string own = path + "/" + TextAt(object, "metadata.name");
  Status made;
  for (int look = 0; look < 2; ++look) {
    const auto found = client_.Get(own);
    if (found.ok()) return Meet(job, own, object, *found);
    if (!absl::IsNotFound(found.status())) return found.status();
    made = client_.Create(path, object).status();
    if (!absl::IsAlreadyExists(made)) break;
  }
  return made;
}

// There is one of that name.
Status JobObjects::Meet(const TrainingJob& job, const std::string& path, const json& object,
                        const json& found) {
  switch (OwnershipOf(found, job)) {
    case Ownership::kForeign:
      return InTheWay(kTakenUrl, Called(object) + " is there and is " + OwnerText(found) +
                                     ": the job needs the name; rename one of the two");
    case Ownership::kLeaving:
      return InTheWay(kLeavingUrl, "waits for " + Called(object) + " of before to go");
    case Ownership::kOurs:
      break;
  }
  json wanted = object;
  wanted["metadata"].erase("ownerReferences");  // the controller is; others may have joined it
  for (const char* written : {"apiVersion", "kind"}) wanted.erase(written);
  if (Holds(found, wanted)) return absl::OkStatus();
  // With the version that was compared: a change in between refuses the patch.
  wanted["metadata"]["uid"] = TextAt(found, "metadata.uid");
  wanted["metadata"]["resourceVersion"] = TextAt(found, "metadata.resourceVersion");
  return client_.Patch(path, PatchType::kMerge, wanted).status();
}

Status JobObjects::Remove(const TrainingJob& job, const std::string& path) {
  if (job.generation == 1) return absl::OkStatus();  // it never asked for one
  const auto found = client_.Get(path);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  if (!found.ok()) return found.status();
  if (OwnershipOf(*found, job) != Ownership::kOurs) return absl::OkStatus();
  const std::string uid = TextAt(*found, "metadata.uid");
  const Status gone = client_.Delete(path, {{"preconditions", {{"uid", uid}}}});
  return absl::IsNotFound(gone) ? absl::OkStatus() : gone;
}

// What the spec may ask for, and ask for no more. Both are tried; the first error is returned.
Status JobObjects::EnsureGuards(const TrainingJob& job) {
  const std::string in = "/namespaces/" + job.space;
  Status first;
  for (const auto& [path, object] :
       {std::pair("/apis/policy/v1" + in + "/poddisruptionbudgets", BuildDisruptionBudget(job)),
        std::pair("/apis/networking.k8s.io/v1" + in + "/networkpolicies",
                  BuildNetworkPolicy(job))}) {
    first.Update(object ? Put(job, path, *object) : Remove(job, path + "/" + GuardName(job)));
  }
  return first;
}

Status JobObjects::TryAll(const TrainingJob& job, Known& known) {
  // It travels with each pod, so that no object of ours can be missing when kubelet wants it.
  if (known.trust.empty()) {
    ASSIGN_OR_RETURN(known.trust, trust_(job));
  }
  RETURN_IF_ERROR(Put(job, "/api/v1/namespaces/" + job.space + "/services", BuildService(job)));
  return EnsureGuards(job);
}

Status JobObjects::Ensure(const TrainingJob& job) {
  Known& known = known_[job.uid];
  // Not in every turn: one of a thousand pods costs no requests for these.
  const bool again = known.doubted || known.missed || clock_() - known.looked >= kChildrenAgain;
  if (known.ensured && !(again && clock_() >= known.not_before)) return absl::OkStatus();
  Status status = TryAll(job, known);
  known.obstacle = ObstacleOf(status);
  if (!status.ok()) {
    known.not_before = clock_() + kObstacleLook;  // from the answer on: it may take long
    // Nobody says that it is gone.
    if (known.ensured && !known.obstacle) return absl::OkStatus();
    known.ensured = false;
    return status;
  }
  known.guards_of = job.generation;
  known.ensured = true;
  known.doubted = known.missed = false;
  known.looked = clock_();
  return status;
}

void JobObjects::Prepare(const TrainingJob& job) {
  const Known& known = known_[job.uid];
  if (!known.ensured && clock_() >= known.not_before) (void)Ensure(job);
}

void JobObjects::Retry(const TrainingJob& job) {
  const Known& known = known_[job.uid];
  if (known.obstacle || known.missed) (void)Ensure(job);
}

void JobObjects::Doubt(const std::string& job_uid) {
  if (const auto known = known_.find(job_uid); known != known_.end()) known->second.missed = true;
}

void JobObjects::DoubtAll() {
  for (auto& [uid, known] : known_) known.doubted = true;
}

WallTime JobObjects::FollowEdit(const TrainingJob& job) {
  Known& known = known_[job.uid];
  if (known.guards_of == job.generation || job.deleting) return WallTime::Infinite();
  const bool tried = std::exchange(known.guards_tried, job.generation) == job.generation;
  if (tried && clock_() < known.not_before) return known.not_before;
  const Status status = EnsureGuards(job);
  // Only an obstacle is shown. A server that is away passes, and the next look tries again.
  known.unguarded = ObstacleOf(status) ? std::string(status.message()) : "";
  if (status.ok()) {
    known.guards_of = job.generation;
    return WallTime::Infinite();
  }
  log_.Warning("guards not changed", {{"job", job.name}, {"why", status.ToString()}});
  known.not_before = clock_() + kGuardsAgain;
  return known.not_before;
}

std::string JobObjects::trust(const std::string& job_uid) const {
  const auto known = known_.find(job_uid);
  return known == known_.end() ? std::string() : known->second.trust;
}

bool JobObjects::ensured(const std::string& job_uid) const {
  const auto known = known_.find(job_uid);
  return known != known_.end() && known->second.ensured;
}

std::optional<Obstacle> JobObjects::obstacle(const std::string& job_uid) const {
  const auto known = known_.find(job_uid);
  return known == known_.end() ? std::nullopt : known->second.obstacle;
}

std::string JobObjects::unguarded(const std::string& job_uid) const {
  const auto known = known_.find(job_uid);
  return known == known_.end() ? std::string() : known->second.unguarded;
}

}  // namespace crowdsurf::controller
