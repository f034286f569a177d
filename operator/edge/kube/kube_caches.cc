#include <algorithm>
#include <memory>
#include <utility>

#include "operator/core/decide/classify.h"
#include "operator/core/observe/held_bytes.h"
#include "operator/edge/kube/kube_cluster.h"
#include "operator/edge/reconcile/controller_metrics.h"
#include "operator/edge/reconcile/no_escape.h"

// KubeCluster's caches: what the watches tell, and what our own writes let us assume.
namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr const char* kResources[] = {"trainingjobs", "pods", "nodes"};  // by Kind

constexpr size_t kMaxSpaces = 4096;  // above it a quota's back-off is not cut short

std::string SpaceOf(const std::string& key) { return key.substr(0, key.find('/')); }

}  // namespace

KubeCluster::KubeCluster(KubeClient& client, KubeClusterOptions options, Rng rng, Logger log,
                         MetricRegistry& metrics)
    : client_(client),
      options_(std::move(options)),
      log_(log),
      events_dropped_(metrics.AddCounter("crowdsurf_operator_events_dropped_total",
                                         "Events of Kubernetes that were not recorded.")),
      news_waits_(metrics.AddCounter("crowdsurf_operator_news_waits_total",
                                     "Times that a watch waited for the operator's attention.")),
      news_bytes_(metrics.AddGauge("crowdsurf_operator_news_bytes",
                                   "What watches told and waits for the operator's attention.")),
      exceptions_(ExceptionsOf(metrics, "projection")),
      news_(kMaxNews, kMaxNewsBytes),
      objects_(client_, options_.trust, options_.clock, log_),
      specs_(client_, options_.clock, log_),
      errands_(metrics),
      events_(metrics) {
  CountDeaths(metrics);
  for (const Kind kind : {kJobs, kPods, kNodes}) {
    cached_[kind] = &metrics.AddGauge("crowdsurf_operator_cache_objects",
                                      "Objects of the API server that are held, by kind.",
                                      {{"resource", kResources[kind]}});
    unreadable_[kind] = &metrics.AddCounter("crowdsurf_operator_objects_unreadable_total",
                                            "Objects of watches that could not be read, by kind.",
                                            {{"resource", kResources[kind]}});
  }
  const auto reflect = [&](Kind kind, Reflector::Receiver receiver) {
    receiver.path = PathOf(kind);
    reflectors_.push_back(std::make_unique<Reflector>(client_, std::move(receiver),
                                                      rng.Fork(PathOf(kind)), log, metrics));
  };
  reflect(kJobs, ReceiverOf<JobEntry>(kJobs, ObserveJob));
  reflect(kPods, ReceiverOf<PodEntry>(kPods, ObservePod));
  reflect(kNodes, ReceiverOf<NodeEntry>(kNodes, ObserveNode));
}

KubeCluster::~KubeCluster() { Stop(); }

void KubeCluster::Start() {
  for (auto& reflector : reflectors_) reflector->Start();
}

void KubeCluster::Stop() {
  stopping_ = true;
  // First, because a watch may wait for room in it and would never end.
  news_.Close();
  errands_.Stop();
  events_.Stop();
  for (auto& reflector : reflectors_) reflector->Stop();
}

std::string KubeCluster::PathOf(Kind kind) const {
  const std::string in = options_.space.empty() ? "" : "/namespaces/" + options_.space;
  if (kind == kJobs) return "/apis/crowdsurf.io/v1alpha1" + in + "/trainingjobs";
  if (kind == kPods) {
    return "/api/v1" + in + "/pods?labelSelector=" + std::string(kJobUidLabel);
  }
  // Nodes are in no namespace: also an operator of one namespace watches all of them.
  return "/api/v1/nodes";
}

// On a reflector's thread. nullopt: it cannot be read, which is counted.
template <class T>
std::optional<Sighting<T>> KubeCluster::See(Kind kind, Project<T> project, const json& object) {
  Sighting<T> seen;
  const Status read = NoEscape(&exceptions_, [&] {
    seen = {controller::KeyOf(object), VersionOf(object), project(object)};
    return absl::OkStatus();
  });
  if (read.ok() && !seen.key.empty() && seen.value) return seen;
  unreadable_[kind]->Add();
  return std::nullopt;
}

template <class T>
Reflector::Receiver KubeCluster::ReceiverOf(Kind kind, Project<T> project) {
  const auto list = std::make_shared<Listing<T>>();  // the one under way; of its thread alone
  Reflector::Receiver receiver;
  receiver.on_begin = [list] { *list = {}; };
  receiver.on_item = [this, kind, project, list](const json& object) {
    if (auto seen = See(kind, project, object)) list->objects.push_back(*std::move(seen));
  };
  receiver.on_list = [this, list](const std::string& version) {
    list->version = VersionNumber(version);
    const size_t bytes = HeldBytes(*list);
    return news_.PostWaiting(std::exchange(*list, {}), bytes);
  };
  receiver.on_event = [this, kind, project](const WatchEvent& event) {
    std::optional<Sighting<T>> seen;
    if (event.type != WatchEvent::Type::kDeleted) seen = See(kind, project, event.object);
    // What can be read no more, as without its labels, is gone as far as we can tell. No list
    // shows it either.
    if (!seen)
      seen = Sighting<T>{controller::KeyOf(event.object), VersionOf(event.object), std::nullopt};
    if (seen->key.empty()) return true;
    const size_t bytes = HeldBytes(*seen);
    return news_.PostWaiting(*std::move(seen), bytes);
  };
  return receiver;
}

std::set<std::string> KubeCluster::Await(std::chrono::steady_clock::time_point deadline) {
  std::set<std::string> touched = std::exchange(assumed_, {});
  auto news = touched.empty() ? news_.Take(deadline) : news_.TryTake();
  // What is posted meanwhile may wait for the next time: the host has other work, too.
  for (size_t taken = 0; news;) {
    std::visit([&](auto& what) { Take(std::move(what), touched); }, *news);
    news = ++taken < kMaxNews ? news_.TryTake() : std::nullopt;
  }
  LookAtDeaths(touched);
  ShowCaches();
  return touched;
}

void KubeCluster::ShowCaches() {
  cached_[kJobs]->Set(static_cast<double>(jobs_.objects().size()));
  cached_[kPods]->Set(static_cast<double>(pods_.objects().size()));
  cached_[kNodes]->Set(static_cast<double>(nodes_.objects().size()));
  news_waits_.Add(static_cast<double>(news_.waits()) - news_waits_.value());
  news_bytes_.Set(static_cast<double>(news_.bytes()));
}

void KubeCluster::Take(Listing<JobEntry> list, std::set<std::string>& touched) {
  listed_[kJobs] = true;
  for (const auto& change : jobs_.Replace(std::move(list))) Touch(change, touched);
  for (const auto& [key, job] : jobs_.objects()) touched.insert(key);
  // A list follows a gap, in which deletions may have gone untold: of jobs, and of what stands
  // beside their pods.
  Sweep();
  objects_.DoubtAll();
}

void KubeCluster::Take(Listing<PodEntry> list, std::set<std::string>& touched) {
  listed_[kPods] = true;
  for (const auto& change : pods_.Replace(std::move(list))) Touch(change, touched);
}

void KubeCluster::Take(Listing<NodeEntry> list, std::set<std::string>& touched) {
  listed_[kNodes] = true;
  // The list knows better than what was asked before it.
  gone_nodes_.clear();
  asked_nodes_.clear();
  for (const auto& change : nodes_.Replace(std::move(list))) Touch(change, touched);
  ListenToNodes(touched);
}

void KubeCluster::Take(Sighting<JobEntry> seen, std::set<std::string>& touched) {
  if (const auto change = jobs_.Apply(std::move(seen))) Touch(*change, touched);
}

void KubeCluster::Take(Sighting<PodEntry> seen, std::set<std::string>& touched) {
  if (const auto change = pods_.Apply(std::move(seen))) Touch(*change, touched);
}

void KubeCluster::Take(Sighting<NodeEntry> seen, std::set<std::string>& touched) {
  // A machine may come back under its old name.
  gone_nodes_.erase(seen.key);
  asked_nodes_.erase(seen.key);
  if (const auto change = nodes_.Apply(std::move(seen))) Touch(*change, touched);
}

void KubeCluster::Touch(const ObjectCache<JobEntry>::Change& change,
                        std::set<std::string>& touched) {
  touched.insert(change.key);
  // After a gap of its watch a name may show another job than before, with no word of the first
  // one's end.
  const bool same =
      change.before && change.after && change.before->job.uid == change.after->job.uid;
  if (!change.after) marked_.erase(change.key);
  if (change.before && !same) EndOf(change.key, change.before->job.uid);
  if (change.after && !same) records_.Of(change.key, change.after->job.uid);
}

void KubeCluster::EndOf(const std::string& key, const std::string& uid) {
  records_.Forget(key);
  deaths_.Forget(uid);
  objects_.Forget(uid);
  specs_.Forget(uid);
  if (options_.forget) options_.forget(uid);
}

void KubeCluster::Touch(const ObjectCache<PodEntry>::Change& change,
                        std::set<std::string>& touched) {
  if (change.before) {
    CountOn(*change.before, -1);
    touched.insert(change.before->job);
    // It made room in its namespace's quota, and need not be asked for.
    if (!change.after) {
      const PodFacts& gone = change.before->facts;
      if (JobRecord* record = records_.Find(change.before->job, change.before->job_uid))
        record->gone.incarnations[gone.index] = gone.incarnation;
      if (pod_gone_at_.size() >= kMaxSpaces) pod_gone_at_.clear();
      pod_gone_at_[SpaceOf(change.key)] = options_.clock();
    }
    // A pod that was made anew under the name has another uid.
    if (!change.after || change.after->facts.uid != change.before->facts.uid) {
      const std::lock_guard lock(uids_mutex_);
      pod_of_uid_.erase(change.before->facts.uid);
    }
    if (!change.after || change.after->job != change.before->job) {
      std::set<std::string>& own = pods_of_[change.before->job];
      own.erase(change.key);
      if (own.empty()) pods_of_.erase(change.before->job);
    }
  }
  if (change.after) {
    Hear(*change.after);
    CountOn(*change.after, 1);
    touched.insert(change.after->job);
    pods_of_[change.after->job].insert(change.key);
    const NodeEntry* node = nodes_.Find(change.after->facts.node);
    if (node != nullptr && node->facts.mark &&
        change.after->facts.Annotation(kNoticeAnnotation).empty()) {
      marked_.insert(change.after->job);
    }
    const std::lock_guard lock(uids_mutex_);
    pod_of_uid_[change.after->facts.uid] = change.key;
  }
}

bool KubeCluster::IsWorker(const std::string& pod_uid) const {
  const std::lock_guard lock(uids_mutex_);
  return pod_of_uid_.contains(pod_uid);
}

// A node that changes concerns the jobs on it, and no other.
void KubeCluster::CountOn(const PodEntry& pod, int change) {
  if (pod.facts.node.empty()) return;
  auto& jobs = pods_on_[pod.facts.node];
  if ((jobs[pod.job] += change) == 0) jobs.erase(pod.job);
  if (!jobs.empty()) return;
  pods_on_.erase(pod.facts.node);
  gone_nodes_.erase(pod.facts.node);
}

void KubeCluster::Touch(const ObjectCache<NodeEntry>::Change& change,
                        std::set<std::string>& touched) {
  if (!change.after) {
    silent_.erase(change.key);
    if (pods_on_.contains(change.key)) gone_nodes_.insert(change.key);
  }
  const bool marked = change.after && change.after->facts.mark;
  if (const auto on = pods_on_.find(change.key); on != pods_on_.end()) {
    for (const auto& [job, pods] : on->second) {
      touched.insert(job);
      if (marked) marked_.insert(job);
    }
  }
  ListenToNodes(touched);
}

void KubeCluster::ListenToNodes(std::set<std::string>& touched) {
  const auto& nodes = nodes_.objects();
  const bool heard = nodes.empty() || std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
                       return !node.second.value.facts.not_ready_since.has_value();
                     });
  if (!heard) {
    nodes_heard_since_ = WallTime::Infinite();
  } else if (nodes_heard_since_.infinite()) {
    nodes_heard_since_ = options_.clock();
    for (const auto& [key, job] : jobs_.objects()) touched.insert(key);
  }
}

// What the server answered to a write of ours: in the cache before its watch tells.
void KubeCluster::Assume(Sighting<PodEntry> pod) {
  if (!pod.value) return;  // it cannot be read, which its watch will count
  // The answer may hold more news than our write: the job is looked at again.
  if (const auto change = pods_.Assume(std::move(pod))) Touch(*change, assumed_);
}

std::vector<std::string> KubeCluster::Jobs() const {
  std::vector<std::string> keys;
  for (const auto& [key, job] : jobs_.objects()) keys.push_back(key);
  return keys;
}

std::string KubeCluster::UidOf(const std::string& job) const {
  const JobEntry* entry = jobs_.Find(job);
  return entry == nullptr ? std::string() : entry->job.uid;
}

std::optional<KubeCluster::AskedAgent> KubeCluster::AgentOf(const std::string& job) const {
  const JobEntry* entry = jobs_.Find(job);
  const auto own = pods_of_.find(job);
  if (entry == nullptr || own == pods_of_.end()) return std::nullopt;
  // First one whose word decides, then one that trains, then one that may say why it does not.
  const PodEntry* trains = nullptr;
  const PodEntry* waits = nullptr;
  for (const std::string& key : own->second) {
    const PodEntry* pod = pods_.Find(key);
    if (pod == nullptr || pod->job_uid != entry->job.uid || pod->http.empty()) continue;
    const PodFacts& facts = pod->facts;
    if (facts.deleted) continue;
    if (AwaitsWords(facts)) return AskedAgent{pod->job_uid, facts.name, pod->http};
    if (facts.ready_since && trains == nullptr) trains = pod;
    if (facts.started && waits == nullptr) waits = pod;
  }
  const PodEntry* asked = trains != nullptr ? trains : waits;
  if (asked == nullptr) return std::nullopt;
  return AskedAgent{asked->job_uid, asked->facts.name, asked->http};
}

std::map<std::string, KubeCluster::Agent> KubeCluster::AgentsOf(const std::string& job) const {
  std::map<std::string, Agent> agents;
  const JobEntry* entry = jobs_.Find(job);
  const auto own = pods_of_.find(job);
  if (entry == nullptr || own == pods_of_.end()) return agents;
  for (const std::string& key : own->second) {
    const PodEntry* pod = pods_.Find(key);
    if (pod == nullptr || pod->job_uid != entry->job.uid || pod->http.empty()) continue;
    const PodFacts& facts = pod->facts;
    if (!facts.deleted && !facts.trainer && (facts.ready_since || facts.started))
      agents[facts.name] = {facts.index, pod->http};
  }
  return agents;
}

}  // namespace crowdsurf::controller
