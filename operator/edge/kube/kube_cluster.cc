#include "operator/edge/kube/kube_cluster.h"

#include <algorithm>

#include "base/text.h"
#include "operator/core/decide/decide.h"
#include "operator/core/job/json_path.h"
#include "operator/edge/reconcile/parallel_requests.h"

// The Cluster port: what Decide reads. The caches below it: kube_caches.cc; what its plan becomes:
// kube_writes.cc, job_objects.cc; peers' word of deaths: kube_deaths.cc.
namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr Duration kProgressEvery = Seconds(60);
constexpr size_t kMaxRates = 64;  // asked between two progresses that are taken; six, as a rule
constexpr Duration kLate = Seconds(15);        // a placed pod starts in 3 s where its images are
constexpr Duration kSweepAgain = Seconds(10);  // after a try that failed
constexpr int kRepeated = 3;  // times that an event came; kubelet tries again and again

}  // namespace

StatusOr<JobSnapshot> KubeCluster::Observe(const std::string& job) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("there is no job ", job));
  if (entry->job.spec.managed_by != kManagedByUs) {
    return absl::FailedPreconditionError("managed by " + entry->job.spec.managed_by);
  }
  JobSnapshot snapshot;
  snapshot.status = entry->status;
  RETURN_IF_ERROR(ChooseSpec(*entry, snapshot));
  LookBeside(snapshot);
  const auto told = told_.find(job);
  // After a restart the status has the last progress that is known.
  snapshot.progress = told == told_.end() ? entry->status.progress : told->second.progress;
  ReadLeases(job);
  const auto own = pods_of_.find(job);
  if (own == pods_of_.end()) {
    AddHeard(snapshot);
    return snapshot;
  }
  std::set<std::string> unknown;
  for (const std::string& key : own->second) {
    const PodEntry* pod = pods_.Find(key);
    // A pod of a job that was deleted and made again is not this job's: the garbage collector's.
    if (pod == nullptr || pod->job_uid != entry->job.uid) continue;
    snapshot.pods.push_back(pod->facts);
    const std::string& name = pod->facts.node;
    if (name.empty() || snapshot.nodes.contains(name)) continue;
    if (const NodeEntry* node = nodes_.Find(name)) {
      snapshot.nodes[name] = node->facts;
      snapshot.nodes[name].renewed_at = RenewedAt(name, node->facts);
    } else {
      unknown.insert(name);
    }
  }
  AskForNodes(unknown);
  for (const std::string& name : unknown) {
    if (!gone_nodes_.contains(name)) snapshot.nodes[name];  // its watch is late
  }
  snapshot.nodes_heard_since = nodes_heard_since_;
  // After an outage kubelets come back one by one: some nodes are Ready, and who is late is no
  // more dead than they. Nobody is given up before all have had their time.
  if (const Duration rest = client_.OutageLingers(); rest > Duration()) {
    const WallTime silent =
        options_.clock() + rest - snapshot.job.spec.disruption.tolerated_unreachable;
    snapshot.nodes_heard_since = std::max(nodes_heard_since_, silent);
  }
  JudgeDeaths(job, snapshot);
  ExplainWaiting(job, snapshot.pods);
  AddHeard(snapshot);
  return snapshot;
}

// The newest spec, or the last one that could be run: what a user got wrong, or a stricter operator
// does not take, stops no workers. `suspend: true` is obeyed whatever else is wrong.
Status KubeCluster::ChooseSpec(const JobEntry& entry, JobSnapshot& snapshot) {
  const int64_t kept = entry.status.accepted_generation;
  if (entry.violations.empty()) {
    snapshot.job = entry.job;
    snapshot.warnings = WhatIsWrong(entry.warnings);
    // A job that is over runs no spec any more, so none is kept for it.
    const bool over = entry.job.deleting || entry.status.finished();
    const AcceptedSpecs::Kept now = over ? AcceptedSpecs::Kept{kept} : specs_.Keep(entry.job, kept);
    snapshot.accepted_generation = now.generation;
    snapshot.look_again = now.again;
    return absl::OkStatus();
  }
  auto last = specs_.LastOf(entry.job);
  if (absl::IsNotFound(last.status())) {
    RETURN_IF_ERROR(RefuseSpec(entry));
    return absl::InvalidArgumentError(entry.violations.front());
  }
  if (!last.ok()) return last.status();
  snapshot.job = *std::move(last);
  snapshot.job.spec.suspend = snapshot.job.spec.suspend || entry.job.spec.suspend;
  snapshot.accepted_generation = kept;
  snapshot.refused = RefusedSpec{entry.job.generation, WhatIsWrong(entry.violations)};
  return absl::OkStatus();
}

// A job that is deleted while no operator runs is told by no watch.
void KubeCluster::Sweep() {
  if (!options_.sweep || options_.clock() < sweep_at_) return;
  std::set<std::string> uids;
  for (const auto& [key, held] : jobs_.objects()) uids.insert(held.value.job.uid);
  const Status swept = options_.sweep(uids);
  sweep_at_ = swept.ok() ? WallTime::Infinite() : options_.clock() + kSweepAgain;
  if (!swept.ok()) log_.Warning("keys of deleted jobs are kept", {{"why", swept.ToString()}});
}

// Pods of a job of this name that was deleted are not this one's.
bool KubeCluster::HasPods(const TrainingJob& job) const {
  const auto own = pods_of_.find(job.space + "/" + job.name);
  if (own == pods_of_.end()) return false;
  return std::any_of(own->second.begin(), own->second.end(), [&](const std::string& key) {
    const PodEntry* pod = pods_.Find(key);
    return pod != nullptr && pod->job_uid == job.uid;
  });
}

// The objects beside the pods. Workers do not wait for the guards of an edit, also after another
// operator has made them; the first ones wait for all that the job starts with.
void KubeCluster::LookBeside(JobSnapshot& snapshot) {
  const TrainingJob& job = snapshot.job;
  const bool has_pods = HasPods(job);
  if (objects_.ensured(job.uid) || has_pods)
    snapshot.look_again = std::min(snapshot.look_again, objects_.FollowEdit(job));
  const bool wants_pods = !job.deleting && !job.spec.suspend && job.spec.replicas > 0 &&
                          !snapshot.status.finished() && !snapshot.status.target_time;
  if (!wants_pods) return;
  has_pods ? objects_.Retry(job) : objects_.Prepare(job);
  snapshot.obstacle = objects_.obstacle(job.uid);
  snapshot.unguarded = objects_.unguarded(job.uid);
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
    // Also after an error, so that a slow server is not asked in every turn.
    known = {late->uid, "", now};
    if (events.ok()) {
      Each(*events, "items", [&](const json& event) {  // FailedMount, FailedCreatePodSandBox, ...
        const json* count = Member(&event, "count");
        const bool often = count != nullptr && count->is_number() && *count >= kRepeated;
        if (!often || TextAt(event, "reason").rfind("Failed", 0) != 0) return;
        known.message = TextAt(event, "message");
      });
    }
  }
  if (known.message.empty()) return;
  late->waiting_reason = reason::kCannotStart;
  late->waiting_message = CutText(known.message, kMaxOutputInStatus);
}

// The pods' watch may run ahead of the nodes': ask before calling a node gone.
void KubeCluster::AskForNodes(const std::set<std::string>& names) {
  std::vector<std::string> asked;
  for (const std::string& name : names) {
    if (!gone_nodes_.contains(name) && asked.size() < kMaxLeases) asked.push_back(name);
  }
  const auto found = ParallelRequests(
      asked.size(), [&](size_t i) { return client_.Get("/api/v1/nodes/" + asked[i]).status(); });
  for (size_t i = 0; i < asked.size(); ++i) {
    if (absl::IsNotFound(found[i])) gone_nodes_.insert(asked[i]);
  }
}

void KubeCluster::SetWait(const std::string& job, const std::string& uid, const std::string& worker,
                          const std::string& wait) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr || entry->job.uid != uid) return;
  Heard& heard = heard_[uid];
  heard.worker = worker;
  heard.wait = wait;
}

// A kubelet writes how an agent ended and deletes the pod within milliseconds: what the agent left
// behind outlives the pod.
void KubeCluster::Hear(const PodEntry& pod) {
  const JobEntry* entry = jobs_.Find(pod.job);
  if (!pod.facts.last_words || entry == nullptr || entry->job.uid != pod.job_uid) return;
  std::optional<Progress>& words = heard_[pod.job_uid].words;
  if (!words) words.emplace();
  AddWords(*words, *pod.facts.last_words);
}

void KubeCluster::AddHeard(JobSnapshot& snapshot) const {
  const auto heard = heard_.find(snapshot.job.uid);
  if (heard == heard_.end()) return;
  if (heard->second.words) AddWords(snapshot.progress, *heard->second.words);
  for (PodFacts& pod : snapshot.pods) {
    if (pod.name == heard->second.worker) pod.wait = heard->second.wait;
  }
}

void KubeCluster::SetProgress(const std::string& job, const std::string& uid,
                              const Progress& progress) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr || entry->job.uid != uid) return;
  const WallTime now = options_.clock();
  Told& told = told_[job];
  if (progress.samples_per_second > 0 && told.rates.size() < kMaxRates) {
    told.rates.push_back(progress.samples_per_second);
  }
  // The first rate does not wait for its minute: goodput is measured from it on.
  const bool first_rate = told.progress.samples_per_second <= 0 && !told.rates.empty();
  if (told.taken && told.progress.target_met == progress.target_met && !first_rate &&
      now - *told.taken < kProgressEvery) {
    return;
  }
  told.progress = progress;
  told.taken = now;
  if (told.rates.empty()) return;
  const auto middle = told.rates.begin() + static_cast<ptrdiff_t>(told.rates.size() / 2);
  // The median, because a worker that has just joined tells an odd rate.
  std::nth_element(told.rates.begin(), middle, told.rates.end());
  told.progress.samples_per_second = *middle;
  told.rates.clear();
}

}  // namespace crowdsurf::controller
