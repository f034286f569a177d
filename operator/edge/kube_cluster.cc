#include "operator/edge/kube_cluster.h"

#include <algorithm>
#include <thread>

#include "operator/core/json_path.h"
#include "operator/core/rfc3339.h"

// The Cluster port: what Decide reads and what its plan becomes; caches are in kube_caches.cc.
namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr double kEventBurst = 25;    // client-go's spam filter
constexpr double kEventSeconds = 12;  // until one more
constexpr Duration kProgressEvery = Seconds(60);
constexpr size_t kMostRates = 64;  // asked between two progresses that are taken; six, as a rule
// Between two tries to follow an edit of a job's guards: the API server may be away, or refuse.
constexpr Duration kGuardsAgain = Seconds(10);
constexpr Duration kLate = Seconds(15);  // a placed pod starts in 3 s where its images are
constexpr int kRepeated = 3;             // times that an event came; kubelet tries again and again
constexpr size_t kMostMessage = 1024;    // of an event: the server's own limit
// Of the client's 16 connections; the rest are for what the certificates' port asks meanwhile.
constexpr size_t kMostWriters = 12;
constexpr char kApply[] = "?fieldManager=crowdsurf-operator&force=true";

std::string PodPath(const std::string& key) {
  const size_t slash = key.find('/');
  return "/api/v1/namespaces/" + key.substr(0, slash) + "/pods/" + key.substr(slash + 1);
}

std::string JobPath(const std::string& key) {
  const size_t slash = key.find('/');
  return "/apis/crowdsurf.io/v1alpha1/namespaces/" + key.substr(0, slash) + "/trainingjobs/" +
         key.substr(slash + 1);
}

std::string KeyOf(const TrainingJob& job) { return job.space + "/" + job.name; }

// `ask` of 0 .. count - 1, on up to kMostWriters threads; the caller waits for all.
template <class Ask>
std::vector<StatusOr<json>> AtOnce(size_t count, const Ask& ask) {
  std::vector<StatusOr<json>> answers(count);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next++) < count;) answers[i] = ask(i);
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(count, kMostWriters); ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return answers;
}

bool OwnedBy(const json& object, const std::string& uid) {
  const json* owners = At(object, "metadata.ownerReferences");
  return owners != nullptr && owners->is_array() &&
         std::any_of(owners->begin(), owners->end(), [&](const json& owner) {
           return owner.is_object() && owner.value("uid", "") == uid;
         });
}

}  // namespace

StatusOr<JobSnapshot> KubeCluster::Observe(const std::string& job) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("there is no job ", job));
  if (!entry->violations.empty()) {
    RETURN_IF_ERROR(RefuseSpec(*entry));
    return absl::InvalidArgumentError(entry->violations.front());
  }
  if (entry->job.spec.managed_by != kManagedByUs) {
    return absl::FailedPreconditionError("managed by " + entry->job.spec.managed_by);
  }
  // Workers do not wait for the guards of an edit. Also after another operator has made them.
  if (ensured_.contains(entry->job.uid) || pods_of_.contains(job)) FollowEdit(entry->job);
  JobSnapshot snapshot;
  snapshot.job = entry->job;
  snapshot.status = entry->status;
  const auto told = told_.find(job);
  snapshot.progress = told == told_.end() ? entry->status.progress : told->second.progress;
  const auto own = pods_of_.find(job);
  if (own == pods_of_.end()) return snapshot;
  for (const std::string& key : own->second) {
    const PodEntry* pod = pods_.Find(key);
    // A pod of a job that was deleted and made again is not this job's: the garbage collector's.
    if (pod == nullptr || pod->job_uid != entry->job.uid) continue;
    snapshot.pods.push_back(pod->facts);
    const std::string& name = pod->facts.node;
    if (name.empty() || snapshot.nodes.contains(name)) continue;
    if (const NodeEntry* node = nodes_.Find(name)) {
      snapshot.nodes[name] = node->facts;
      snapshot.nodes[name].renewed_at = RenewedAt(name, node->facts.not_ready_since.has_value());
    } else if (!NodeIsGone(name)) {
      snapshot.nodes[name];  // its watch is late
    }
  }
  snapshot.nodes_heard_since = nodes_heard_since_;
  // After an outage kubelets come back one by one: some nodes are Ready, and who is late is no
  // more dead than they. Nobody is given up before all have had their time.
  if (const Duration rest = client_.OutageLingers(); rest > Duration()) {
    const WallTime silent =
        options_.clock() + rest - entry->job.spec.disruption.tolerated_unreachable;
    snapshot.nodes_heard_since = std::max(nodes_heard_since_, silent);
  }
  JudgeDeaths(job, snapshot);
  ExplainWaiting(job, snapshot.pods);
  return snapshot;
}

// A volume that cannot be mounted shows in a pod's events and nowhere else: of the first worker
// that is late without a reason they are asked for, seldom.
void KubeCluster::ExplainWaiting(const std::string& job, std::vector<PodFacts>& pods) {
  const WallTime now = options_.clock();
  const auto late = std::find_if(pods.begin(), pods.end(), [&](const PodFacts& pod) {
    return pod.phase == PodPhase::kPending && !pod.node.empty() && !pod.deleted &&
           pod.waiting_reason.empty() && now - pod.created >= kLate;
  });
  if (late == pods.end()) {
    explained_.erase(job);
    return;
  }
  Explained& known = explained_[job];
  if (known.uid != late->uid || now - known.asked >= kLate) {
    const std::string space = job.substr(0, job.find('/'));
    const auto events =
        client_.Get("/api/v1/namespaces/" + space + "/events?limit=50&fieldSelector=type=Warning" +
                    ",involvedObject.uid=" + late->uid);
    known = {late->uid, "", now};
    if (events.ok() && events->contains("items") && (*events)["items"].is_array()) {
      for (const json& event : (*events)["items"]) {  // FailedMount, FailedCreatePodSandBox, ...
        const json* count = Member(&event, "count");
        const bool often = count != nullptr && count->is_number() && *count >= kRepeated;
        if (!often || event.value("reason", "").rfind("Failed", 0) != 0) continue;
        known.message = event.value("message", "");
      }
    }
  }
  if (known.message.empty()) return;
  late->waiting_reason = reason::kCannotStart;
  late->waiting_message = known.message.substr(0, kMostOutputInStatus);
}

// The pods' watch may run ahead of the nodes': ask before calling a node gone.
bool KubeCluster::NodeIsGone(const std::string& node) {
  if (gone_nodes_.contains(node)) return true;
  if (!absl::IsNotFound(client_.Get("/api/v1/nodes/" + node).status())) return false;
  gone_nodes_.insert(node);
  return true;
}

// Compared with itself only: the kubelet's clock may differ from ours. Without the right to read
// Leases, or without one, the condition of the node is all that is known.
std::optional<WallTime> KubeCluster::RenewedAt(const std::string& node, bool not_ready) {
  if (!not_ready) {
    silent_.erase(node);
    return std::nullopt;
  }
  const WallTime now = options_.clock();
  const auto [at, first] = silent_.try_emplace(node);
  Silent& known = at->second;
  if (!first && now - known.asked < kLeaseGap) return known.renewed_at;
  known.asked = now;
  const auto lease =
      client_.Get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + node);
  const json* spec = lease.ok() ? Member(&*lease, "spec") : nullptr;
  const json* renewed = Member(spec, "renewTime");
  if (renewed == nullptr || !renewed->is_string()) return known.renewed_at;
  if (!known.renewed.empty() && known.renewed != *renewed) known.renewed_at = now;
  known.renewed = *renewed;
  return known.renewed_at;
}

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
  const std::string uid = (*found)["metadata"].value("uid", "");
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

Status KubeCluster::Create(const TrainingJob& job, const CreatePod& create) {
  return CreateAll(job, std::span(&create, 1)).front();
}

// Only the requests are made on other threads; what their answers mean is settled here, in order.
std::vector<Status> KubeCluster::CreateAll(const TrainingJob& job,
                                           std::span<const CreatePod> creates) {
  if (const Status ready = EnsureObjects(job); !ready.ok()) return {creates.size(), ready};
  const auto made = AtOnce(creates.size(), [&](size_t i) { return Post(job, creates[i]); });
  std::vector<Status> answers;
  for (size_t i = 0; i < creates.size(); ++i) answers.push_back(Settle(job, creates[i], made[i]));
  return answers;
}

StatusOr<json> KubeCluster::Post(const TrainingJob& job, const CreatePod& create) {
  const std::string path = "/api/v1/namespaces/" + job.space + "/pods?fieldValidation=Strict";
  return client_.Create(path, BuildPod(job, create, options_.pods));
}

Status KubeCluster::Settle(const TrainingJob& job, const CreatePod& create,
                           const StatusOr<json>& made) {
  if (made.ok()) {
    Assume(*made);
    return absl::OkStatus();
  }
  const Status& status = made.status();
  if (absl::IsAlreadyExists(status)) return AdoptExisting(job, create, status);
  // The server says 403 for both; a quota is capacity, not a right.
  if (absl::IsPermissionDenied(status) &&
      status.message().find("exceeded quota") != absl::string_view::npos) {
    return absl::ResourceExhaustedError(status.message());
  }
  return status;
}

// Of that name there is one: ours from before a crash (success), or one that is being deleted,
// which the next decision will see and step over.
Status KubeCluster::AdoptExisting(const TrainingJob& job, const CreatePod& create,
                                  const Status& refusal) {
  const auto pod = client_.Get(PodPath(job.space + "/" + create.name));
  if (!pod.ok()) return pod.status();
  const auto entry = ObservePod(*pod);
  if (!entry || entry->job_uid != job.uid) return refusal;
  Assume(*pod);
  if (!entry->facts.deleted) return absl::OkStatus();
  return absl::AbortedError(create.name + " is being deleted");
}

Status KubeCluster::Delete(const DeletePod& pod) {
  const auto key = pod_of_uid_.find(pod.uid);
  if (key == pod_of_uid_.end()) return absl::OkStatus();
  if (pod.reason == reason::kPeersReportedDead) {
    if (const PodEntry* entry = pods_.Find(key->second)) {
      deleted_on_word_[entry->job].push_back({options_.clock(), entry->facts.node});
    }
  }
  json options = {{"preconditions", {{"uid", pod.uid}}}};
  if (pod.grace) options["gracePeriodSeconds"] = static_cast<int64_t>(pod.grace->seconds());
  const Status status = client_.Delete(PodPath(key->second), options);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

Status KubeCluster::Annotate(const AnnotatePod& note) {
  return AnnotateAll(std::span(&note, 1)).front();
}

std::vector<Status> KubeCluster::AnnotateAll(std::span<const AnnotatePod> notes) {
  const auto patched = AtOnce(notes.size(), [&](size_t i) { return Patch(notes[i]); });
  std::vector<Status> answers;
  for (const StatusOr<json>& pod : patched) {
    if (pod.ok()) Assume(*pod);
    answers.push_back(absl::IsNotFound(pod.status()) ? absl::OkStatus() : pod.status());
  }
  return answers;
}

StatusOr<json> KubeCluster::Patch(const AnnotatePod& note) {
  const auto key = pod_of_uid_.find(note.uid);
  if (key == pod_of_uid_.end()) return absl::NotFoundError(note.name);
  json value = note.value;
  if (note.value.empty()) value = nullptr;
  json annotations = {{std::string(note.key), value}};
  if (note.key != kToldAtAnnotation) {  // it will be told again (policy_agents.cc)
    annotations[std::string(kToldAtAnnotation)] = FormatInstant(options_.clock());
  }
  const json patch = {{"metadata", {{"uid", note.uid}, {"annotations", annotations}}}};
  return client_.Patch(PodPath(key->second), PatchType::kMerge, patch);
}

Status KubeCluster::WriteStatus(const TrainingJob& job, const TrainingJobStatus& status) {
  const std::string key = KeyOf(job);
  const JobEntry* entry = jobs_.Find(key);
  if (entry == nullptr || entry->job.uid != job.uid) return absl::OkStatus();  // gone
  const json diff = MergeDiff(entry->status_json, ShownStatus(job, status));
  if (diff.empty()) return absl::OkStatus();
  const json patch = {{"metadata", {{"resourceVersion", std::to_string(entry->version)}}},
                      {"status", diff}};
  const auto written = client_.Patch(JobPath(key) + "/status", PatchType::kMerge, patch);
  if (!written.ok()) {
    return absl::IsNotFound(written.status()) ? absl::OkStatus() : written.status();
  }
  WatchEvent own;
  own.type = WatchEvent::Type::kModified;
  own.object = *written;
  (void)jobs_.Apply(own);
  return absl::OkStatus();
}

// What the CRD let through but the operator cannot run: said in the status, once.
Status KubeCluster::RefuseSpec(const JobEntry& entry) {
  std::string message;
  for (const std::string& violation : entry.violations) {
    message += (message.empty() ? "" : "; ") + violation;
  }
  TrainingJobStatus status = entry.status;
  const Condition* old = status.Find(ConditionType::kAccepted);
  Condition refused{ConditionType::kAccepted,
                    false,
                    std::string(reason::kInvalidTemplate),
                    message.substr(0, kMostMessage),
                    entry.job.generation,
                    options_.clock()};
  if (old != nullptr && !old->on && old->message == refused.message) return absl::OkStatus();
  std::erase_if(status.conditions,
                [](const Condition& c) { return c.type == ConditionType::kAccepted; });
  status.conditions.insert(status.conditions.begin(), refused);
  status.observed_generation = entry.job.generation;
  return WriteStatus(entry.job, status);
}

void KubeCluster::Record(const TrainingJob& job, const Event& event) {
  const WallTime now = options_.clock();
  auto [it, fresh] = purses_.try_emplace(KeyOf(job), Purse{kEventBurst, now});
  Purse& purse = it->second;
  purse.tokens = std::min(kEventBurst, purse.tokens + (now - purse.at).seconds() / kEventSeconds);
  purse.at = now;
  if (purse.tokens < 1) {
    events_dropped_.Add();
    return;
  }
  purse.tokens -= 1;
  const std::string at =
      FormatInstant(WallTime::FromNanoseconds(now.nanoseconds() / 1'000'000'000 * 1'000'000'000));
  const auto made =
      client_.Create("/api/v1/namespaces/" + job.space + "/events",
                     {{"metadata", {{"generateName", job.name + "."}, {"namespace", job.space}}},
                      {"involvedObject",
                       {{"apiVersion", "crowdsurf.io/v1alpha1"},
                        {"kind", "TrainingJob"},
                        {"name", job.name},
                        {"namespace", job.space},
                        {"uid", job.uid}}},
                      {"type", event.warning ? "Warning" : "Normal"},
                      {"reason", event.reason},
                      {"message", event.message.substr(0, kMostMessage)},
                      {"source", {{"component", "crowdsurf-operator"}}},
                      {"firstTimestamp", at},
                      {"lastTimestamp", at},
                      {"count", 1}});
  if (!made.ok()) {
    events_dropped_.Add();
    log_.Warning("event not recorded", {{"why", made.status().ToString()}});
  }
}

void KubeCluster::SetProgress(const std::string& job, const Progress& progress) {
  const WallTime now = options_.clock();
  Told& told = told_[job];
  if (progress.samples_per_second > 0 && told.rates.size() < kMostRates) {
    told.rates.push_back(progress.samples_per_second);
  }
  const bool first_rate = told.progress.samples_per_second <= 0 && !told.rates.empty();
  if (told.taken && told.progress.target_met == progress.target_met && !first_rate &&
      now - *told.taken < kProgressEvery) {
    return;
  }
  told.progress = progress;
  told.taken = now;
  if (told.rates.empty()) return;
  const auto middle = told.rates.begin() + static_cast<ptrdiff_t>(told.rates.size() / 2);
  std::nth_element(told.rates.begin(), middle, told.rates.end());
  told.progress.samples_per_second = *middle;
  told.rates.clear();
}

Status KubeCluster::DeleteJob(const std::string& job) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return absl::OkStatus();
  const Status status = client_.Delete(JobPath(job), {{"preconditions", {{"uid", entry->job.uid}}},
                                                      {"propagationPolicy", "Background"}});
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace crowdsurf::controller
