// What a plan becomes: pods, notes, status and events at the API server (kube_cluster.h).
#include <algorithm>

#include "base/text.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/rfc3339.h"
#include "operator/edge/kube/kube_cluster.h"
#include "operator/edge/reconcile/parallel_requests.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr double kEventBurst = 25;    // client-go's spam filter
constexpr double kEventSeconds = 12;  // until one more
constexpr int kQuotaTries = 5;        // of a create that meets a conflict; a turn's creates wait
constexpr size_t kMaxMessage = 1024;  // of an event: the server's own limit

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

json EventObject(const TrainingJob& job, const Event& event, WallTime now) {
  // metav1.Time has whole seconds.
  const std::string at =
      FormatInstant(WallTime::FromNanoseconds(now.nanoseconds() / 1'000'000'000 * 1'000'000'000));
  return {{"metadata", {{"generateName", job.name + "."}, {"namespace", job.space}}},
          {"involvedObject",
           {{"apiVersion", "crowdsurf.io/v1alpha1"},
            {"kind", "TrainingJob"},
            {"name", job.name},
            {"namespace", job.space},
            {"uid", job.uid}}},
          {"type", event.type == EventType::kWarning ? "Warning" : "Normal"},
          {"reason", event.reason},
          {"message", CutText(event.message, kMaxMessage)},
          {"source", {{"component", "crowdsurf-operator"}}},
          {"firstTimestamp", at},
          {"lastTimestamp", at},
          {"count", 1}};
}

// Of an answer only this is kept: of a thousand pods the JSON would be a hundred megabytes.
Sighting<PodEntry> Seen(const json& pod) {
  return {controller::KeyOf(pod), VersionOf(pod), ObservePod(pod)};
}

}  // namespace

Status KubeCluster::Create(const TrainingJob& job, const CreatePod& create) {
  return CreateAll(job, std::span(&create, 1), {}).front();
}

// Only the requests are made on other threads; what their answers mean is settled here, in order.
std::vector<Status> KubeCluster::CreateAll(const TrainingJob& job,
                                           std::span<const CreatePod> creates,
                                           const Enough& enough) {
  // Without its CA and Service no pod could start, so all creates fail alike.
  if (const Status ready = objects_.Ensure(job); !ready.ok()) return {creates.size(), ready};
  PodBuilderOptions options = options_.pods;
  options.trust = objects_.trust(job.uid);
  const auto made = ParallelRequests(
      creates.size(), [&](size_t i) { return Post(job, creates[i], options); }, enough);
  std::vector<Status> answers;
  for (size_t i = 0; i < made.size(); ++i) answers.push_back(Settle(job, creates[i], made[i]));
  return answers;
}

StatusOr<Sighting<PodEntry>> KubeCluster::Post(const TrainingJob& job, const CreatePod& create,
                                               const PodBuilderOptions& options) {
  // Strict: a misspelt field of the template is refused, where the server would else drop it.
  const std::string path = "/api/v1/namespaces/" + job.space + "/pods?fieldValidation=Strict";
  const json body = BuildPod(job, create, options);
  for (int tries = 1;; ++tries) {
    const StatusOr<json> pod = client_.Create(path, body);
    if (pod.ok()) return Seen(*pod);
    // Several API servers count upon one quota: another was quicker, and nothing is refused.
    if (!absl::IsAborted(pod.status()) || tries == kQuotaTries) return pod.status();
  }
}

Status KubeCluster::Settle(const TrainingJob& job, const CreatePod& create,
                           const StatusOr<Sighting<PodEntry>>& made) {
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

// Of that name there is one: ours, of a create whose answer was lost, or from before a crash. What
// became of it meanwhile the next decision sees and counts.
Status KubeCluster::AdoptExisting(const TrainingJob& job, const CreatePod& create,
                                  const Status& refusal) {
  const auto pod = client_.Get(PodPath(job.space + "/" + create.name));
  if (!pod.ok()) return pod.status();
  const auto entry = ObservePod(*pod);
  // The name is another's, and the reconciler steps over it.
  if (!entry || entry->job_uid != job.uid) return refusal;
  Assume(Seen(*pod));
  return absl::OkStatus();
}

Status KubeCluster::Delete(const DeletePod& pod) {
  return DeleteAll(std::span(&pod, 1), {}).front();
}

std::vector<Status> KubeCluster::DeleteAll(std::span<const DeletePod> pods, const Enough& enough) {
  auto answers = ParallelRequests(
      pods.size(), [&](size_t i) { return Remove(pods[i]); }, enough);
  for (size_t i = 0; i < answers.size(); ++i) {
    // Noted also if the delete failed: the decision counts for its minute (policy_reports.cc).
    if (pods[i].reason != reason::kPeersReportedDead) continue;
    const auto key = pod_of_uid_.find(pods[i].uid);
    const PodEntry* entry = key == pod_of_uid_.end() ? nullptr : pods_.Find(key->second);
    if (entry == nullptr) continue;
    JobRecord* record = records_.Find(entry->job, entry->job_uid);
    if (record == nullptr) continue;
    record->deleted_on_word.push_back({options_.clock(), entry->facts.node});
  }
  return answers;
}

Status KubeCluster::Remove(const DeletePod& pod) {
  const auto key = pod_of_uid_.find(pod.uid);
  // It has gone by itself, which is all that was wanted.
  if (key == pod_of_uid_.end()) return absl::OkStatus();
  // A pod that was made anew under the name is not meant: the server compares.
  json options = {{"preconditions", {{"uid", pod.uid}}}};
  if (pod.grace) options["gracePeriodSeconds"] = static_cast<int64_t>(pod.grace->seconds());
  const Status status = client_.Delete(PodPath(key->second), options);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

Status KubeCluster::Annotate(const AnnotatePod& note) {
  return AnnotateAll(std::span(&note, 1), {}).front();
}

std::vector<Status> KubeCluster::AnnotateAll(std::span<const AnnotatePod> notes,
                                             const Enough& enough) {
  const auto patched = ParallelRequests(
      notes.size(), [&](size_t i) { return Patch(notes[i]); }, enough);
  std::vector<Status> answers;
  for (const auto& pod : patched) {
    if (pod.ok()) Assume(*pod);
    answers.push_back(absl::IsNotFound(pod.status()) ? absl::OkStatus() : pod.status());
  }
  return answers;
}

StatusOr<Sighting<PodEntry>> KubeCluster::Patch(const AnnotatePod& note) const {
  const auto key = pod_of_uid_.find(note.uid);
  if (key == pod_of_uid_.end()) return absl::NotFoundError(note.name);
  json value = note.value;
  // In a merge patch null takes the annotation away.
  if (note.value.empty()) value = nullptr;
  json annotations = {{std::string(note.key), value}};
  if (note.key != kNotifiedAtAnnotation) {  // it will be told again (policy_agents.cc)
    annotations[std::string(kNotifiedAtAnnotation)] = FormatInstant(options_.clock());
  }
  // The server refuses the patch if the pod of this name has another uid.
  const json patch = {{"metadata", {{"uid", note.uid}, {"annotations", annotations}}}};
  const bool notice = note.key == kNoticeAnnotation && options_.notices != nullptr;
  KubeClient& client = notice ? *options_.notices : client_;
  ASSIGN_OR_RETURN(const json pod, client.Patch(PodPath(key->second), PatchType::kMerge, patch));
  return Seen(pod);
}

// A conflict says that somebody changed the object since it was watched. A change of metadata alone
// leaves the decision as good as it was: it is written again, once, upon the newest version.
Status KubeCluster::WriteStatus(const TrainingJob& job, const TrainingJobStatus& status) {
  const std::string key = KeyOf(job);
  const JobEntry* entry = jobs_.Find(key);
  if (entry == nullptr || entry->job.uid != job.uid) return absl::OkStatus();  // gone
  const json diff = MergeDiff(entry->status_json, ShownStatus(job, status));
  // The server has all of it, and a write would wake everybody who watches.
  if (diff.empty()) return absl::OkStatus();
  const JobEntry based_on = *entry;
  Status written = PatchStatus(key, diff);
  if (!absl::IsAborted(written)) return written;
  const auto newest = client_.Get(JobPath(key));
  if (!newest.ok()) return written;
  if (const auto change = AssumeJob(*newest)) Touch(*change, assumed_);
  entry = jobs_.Find(key);
  if (entry == nullptr || !(*entry == based_on)) return written;  // to be decided anew
  return PatchStatus(key, diff);
}

Status KubeCluster::PatchStatus(const std::string& key, const json& diff) {
  const json patch = {{"metadata", {{"resourceVersion", std::to_string(jobs_.Version(key))}}},
                      {"status", diff}};
  const auto written = client_.Patch(JobPath(key) + "/status", PatchType::kMerge, patch);
  if (written.ok()) (void)AssumeJob(*written);  // our own news wake nobody
  return absl::IsNotFound(written.status()) ? absl::OkStatus() : written.status();
}

// What the server answered is in the cache before its watch tells.
std::optional<ObjectCache<JobEntry>::Change> KubeCluster::AssumeJob(const json& job) {
  auto entry = ObserveJob(job);
  if (!entry) return std::nullopt;
  return jobs_.Assume({controller::KeyOf(job), VersionOf(job), std::move(entry)});
}

// What the CRD let through but the operator cannot run: said in the status, once.
Status KubeCluster::RefuseSpec(const JobEntry& entry) {
  TrainingJobStatus status = entry.status;
  const Condition* old = status.Find(ConditionType::kAccepted);
  Condition refused{ConditionType::kAccepted,
                    false,
                    std::string(reason::kInvalidSpec),
                    WhatIsWrong(entry.violations),
                    entry.job.generation,
                    options_.clock()};
  const bool news = status.observed_generation != entry.job.generation;
  if (!news && old != nullptr && !old->on && old->message == refused.message) {
    return absl::OkStatus();
  }
  std::erase_if(status.conditions,
                [](const Condition& c) { return c.type == ConditionType::kAccepted; });
  status.conditions.insert(status.conditions.begin(), refused);
  status.observed_generation = entry.job.generation;
  return WriteStatus(entry.job, status);
}

Status KubeCluster::ShowError(const std::string& job, const std::string& what) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return absl::OkStatus();
  TrainingJobStatus status = entry->status;
  SetCondition(status, {ConditionType::kDegraded, true, std::string(reason::kReconcileError),
                        CutText(what, kMaxMessage), entry->job.generation, options_.clock()});
  return WriteStatus(entry->job, status);
}

// False also for a job that has gone meanwhile.
bool KubeCluster::MaySay(const TrainingJob& job) {
  JobRecord* record = records_.Find(KeyOf(job), job.uid);
  if (record == nullptr) return false;
  const WallTime now = options_.clock();
  if (!record->purse) record->purse = {kEventBurst, now};
  JobRecord::Purse& purse = *record->purse;
  purse.tokens = std::min(kEventBurst, purse.tokens + (now - purse.at).seconds() / kEventSeconds);
  purse.at = now;
  if (purse.tokens < 1) return false;
  purse.tokens -= 1;
  return true;
}

void KubeCluster::Record(const TrainingJob& job, const Event& event) {
  RecordAll(job, std::span(&event, 1));
}

void KubeCluster::RecordAll(const TrainingJob& job, std::span<const Event> events) {
  std::vector<json> objects;
  for (const Event& event : events) {
    // A job ends once: disruptions that used the budget up do not hide how.
    if (MaySay(job) || event.ends_job) {
      objects.push_back(EventObject(job, event, options_.clock()));
    } else {
      events_dropped_.Add();
    }
  }
  if (objects.empty()) return;
  const size_t count = objects.size();
  const bool posted = events_.Post(
      [this, objects = std::move(objects), path = "/api/v1/namespaces/" + job.space + "/events"] {
        const auto made = ParallelRequests(
            objects.size(), [&](size_t i) { return beside().Create(path, objects[i]).status(); });
        for (const Status& status : made) {
          if (status.ok()) continue;
          events_dropped_.Add();
          log_.Warning("event not recorded", {{"why", status.ToString()}});
        }
      });
  if (!posted) events_dropped_.Add(static_cast<double>(count));
}

Status KubeCluster::DeleteJob(const std::string& job) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return absl::OkStatus();
  // In the background: the garbage collector then takes all that the job owns.
  const Status status = client_.Delete(JobPath(job), {{"preconditions", {{"uid", entry->job.uid}}},
                                                      {"propagationPolicy", "Background"}});
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace crowdsurf::controller
