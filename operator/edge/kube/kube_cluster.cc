#include "operator/edge/kube/kube_cluster.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "operator/core/decide/decide.h"

// The Cluster port: what Decide reads. The caches below it: kube_caches.cc; what its plan becomes:
// kube_writes.cc, job_objects.cc; what
// it asks besides: kube_questions.cc; peers' word of deaths: kube_deaths.cc.
namespace crowdsurf::controller {
namespace {

constexpr Duration kProgressEvery = Seconds(60);
constexpr size_t kMaxRates = 64;  // asked between two progresses that are taken; six, as a rule
constexpr size_t kMaxWaits = 64;  // workers of a job that say why they do not train
constexpr Duration kLate = Seconds(15);  // a placed pod starts in 3 s where its images are
// Between two looks at one worker's events, which have no index: an API server reads all those of
// the namespace for it.
constexpr Duration kLooks[] = {Seconds(15), Seconds(60), Seconds(300)};

bool HasSandbox(const PodFacts& pod) {
  return std::any_of(pod.conditions.begin(), pod.conditions.end(), [](const PodCondition& one) {
    return one.type == "PodReadyToStartContainers" && one.status == "True";
  });
}

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
  JobRecord& record = records_.Of(job, entry->job.uid);
  if (const auto gone = pod_gone_at_.find(entry->job.space); gone != pod_gone_at_.end())
    snapshot.pod_gone_at = gone->second;
  // After a restart the status has the last progress that is known.
  snapshot.progress = record.told.taken ? record.told.progress : entry->status.progress;
  AskForLeases(job, record);
  AddGone(*entry, record, snapshot);
  if (!pods_of_.contains(job)) {
    AddHeard(record, snapshot);
    return snapshot;
  }
  AskForNodes(AddPods(*entry, snapshot));
  // After an outage kubelets come back one by one: some nodes are Ready, and who is late is no
  // more dead than they. Nobody is given up before all have had their time.
  if (const Duration rest = client_.OutageLingers(); rest > Duration()) {
    const WallTime silent =
        options_.clock() + rest - snapshot.job.spec.disruption.tolerated_unreachable;
    snapshot.nodes_heard_since = std::max(nodes_heard_since_, silent);
  }
  JudgeDeaths(job, record, snapshot);
  ExplainWaiting(job, record, snapshot);
  AddHeard(record, snapshot);
  return snapshot;
}

// Nothing is asked for: what is known decides who is told.
StatusOr<JobSnapshot> KubeCluster::Glance(const std::string& job) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr || entry->job.spec.managed_by != kManagedByUs) {
    return absl::NotFoundError(absl::StrCat("there is no job ", job));
  }
  JobSnapshot snapshot;
  snapshot.status = entry->status;
  snapshot.job = entry->job;
  if (!entry->violations.empty()) {
    const TrainingJob* runs = specs_.Running(entry->job.uid);
    if (runs == nullptr) return absl::NotFoundError("the spec that it runs is not read yet");
    snapshot.job = *runs;
    snapshot.job.deleting = entry->job.deleting;
  }
  JobRecord& record = records_.Of(job, entry->job.uid);
  snapshot.progress = record.told.taken ? record.told.progress : entry->status.progress;
  AddGone(*entry, record, snapshot);
  (void)AddPods(*entry, snapshot);
  AddHeard(record, snapshot);
  return snapshot;
}

// Returns the nodes that nothing is known of.
std::set<std::string> KubeCluster::AddPods(const JobEntry& entry, JobSnapshot& snapshot) {
  std::set<std::string> unknown;
  const auto own = pods_of_.find(entry.job.space + "/" + entry.job.name);
  if (own == pods_of_.end()) return unknown;
  for (const std::string& key : own->second) {
    const PodEntry* pod = pods_.Find(key);
    // A pod of a job that was deleted and made again is not this job's: the garbage collector's.
    if (pod == nullptr || pod->job_uid != entry.job.uid) continue;
    snapshot.pods.push_back(pod->facts);
    const std::string& name = pod->facts.node;
    if (name.empty() || snapshot.nodes.contains(name)) continue;
    if (const NodeEntry* node = nodes_.Find(name)) {
      snapshot.nodes[name] = node->facts;
      snapshot.nodes[name].renewed_at = RenewedAt(name, node->facts);
    } else {
      unknown.insert(name);
      if (!gone_nodes_.contains(name)) snapshot.nodes[name].unknown = true;
    }
  }
  snapshot.nodes_heard_since = nodes_heard_since_;
  return unknown;
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
  if (!options_.sweep) return;
  std::set<std::string> uids;
  for (const auto& [key, held] : jobs_.objects()) uids.insert(held.value.job.uid);
  options_.sweep(std::move(uids));
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

// A volume that cannot be mounted, or a sandbox that cannot be made, shows in a pod's events and
// nowhere else: of the first worker that is late without a reason they are asked for, seldom. Once
// its sandbox is there it is an image that is waited for, whose faults its status has.
void KubeCluster::ExplainWaiting(const std::string& job, JobRecord& record, JobSnapshot& snapshot) {
  const WallTime now = options_.clock();
  std::vector<PodFacts>& pods = snapshot.pods;
  const auto late = std::find_if(pods.begin(), pods.end(), [&](const PodFacts& pod) {
    return pod.phase == PodPhase::kPending && !pod.node.empty() && !pod.deleted &&
           pod.waiting_reason.empty() && now - pod.created >= kLate && !HasSandbox(pod);
  });
  JobRecord::Explained& known = record.explained;
  if (late == pods.end()) {
    known = {};
    return;
  }
  if (known.uid != late->uid) known = {late->uid, "", now, 0};
  const size_t pause = std::min<size_t>(known.times, std::size(kLooks)) - 1;  // of the last look
  if ((known.times == 0 || now - known.asked >= kLooks[pause]) &&
      AskWhatItsEventsSay(job, snapshot, late->uid)) {
    known.asked = now;
    ++known.times;
    objects_.Doubt(snapshot.job.uid);
  }
  if (known.message.empty()) return;
  late->waiting_reason = reason::kCannotStart;
  late->waiting_message = CutText(known.message, kMaxOutputInStatus);
}

bool KubeCluster::SetWait(const std::string& job, const std::string& uid, const std::string& worker,
                          const std::string& wait) {
  JobRecord* record = records_.Find(job, uid);
  if (record == nullptr) return false;
  std::map<std::string, std::string>& waits = record->heard.waits;
  const auto known = waits.find(worker);
  if (known == waits.end() ? wait.empty() : known->second == wait) return false;
  if (wait.empty()) {
    waits.erase(known);
  } else {
    if (waits.size() >= kMaxWaits) waits.clear();  // who still waits says it again
    waits[worker] = wait;
  }
  return true;
}

void KubeCluster::Say(const std::string& job, const std::string& uid, const Event& event) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry != nullptr && entry->job.uid == uid) Record(entry->job, event);
}

// A kubelet writes how an agent ended and deletes the pod within milliseconds: what the agent left
// behind outlives the pod.
void KubeCluster::Hear(const PodEntry& pod) {
  JobRecord* record = records_.Find(pod.job, pod.job_uid);
  if (!pod.facts.last_words || record == nullptr) return;
  std::optional<Progress>& words = record->heard.words;
  if (!words) words.emplace();
  AddWords(*words, *pod.facts.last_words);
}

void KubeCluster::AddHeard(const JobRecord& record, JobSnapshot& snapshot) {
  const JobRecord::Heard& heard = record.heard;
  if (heard.words) AddWords(snapshot.progress, *heard.words);
  for (PodFacts& pod : snapshot.pods) {
    if (const auto wait = heard.waits.find(pod.name); wait != heard.waits.end())
      pod.wait = wait->second;
  }
}

void KubeCluster::SetProgress(const std::string& job, const std::string& uid,
                              const Progress& progress) {
  JobRecord* record = records_.Find(job, uid);
  if (record == nullptr) return;
  const WallTime now = options_.clock();
  JobRecord::Told& told = record->told;
  if (progress.samples_per_second > 0 && told.rates.size() < kMaxRates) {
    told.rates.push_back(progress.samples_per_second);
  }
  // The first rate does not wait for its minute: goodput is measured from it on.
  const bool first_rate = told.progress.samples_per_second <= 0 && !told.rates.empty();
  if (told.taken && told.progress.target_met == progress.target_met &&
      told.progress.lineages == progress.lineages && !first_rate &&
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
