#include <algorithm>
#include <thread>
#include <utility>

#include "operator/edge/kube/kube_cluster.h"

// KubeCluster's caches: what the watches tell, and what our own writes let us assume.
namespace crowdsurf::controller {
namespace {

constexpr size_t kProducers = 3;
constexpr auto kPause = std::chrono::milliseconds(5);  // of a watch while the mailbox is full
// A list may have begun this long before a create that it does not show (the client's time-out).
constexpr Duration kListLag = Seconds(15);
constexpr const char* kResources[] = {"trainingjobs", "pods", "nodes"};  // by Kind

}  // namespace

KubeCluster::KubeCluster(KubeClient& client, KubeClusterOptions options, Rng rng, Logger log,
                         MetricRegistry& metrics)
    : client_(client),
      options_(std::move(options)),
      log_(log),
      events_dropped_(metrics.AddCounter("crowdsurf_operator_events_dropped_total",
                                         "Events of Kubernetes that were not recorded.")),
      news_(kMostNews),
      jobs_(ObserveJob),
      pods_(ObservePod),
      nodes_(ObserveNode),
      objects_(client_, options_.trust, options_.clock, log_),
      specs_(client_, options_.clock, log_) {
  CountDeaths(metrics);
  for (const Kind kind : {kJobs, kPods, kNodes}) {
    cached_[kind] = &metrics.AddGauge("crowdsurf_operator_cache_objects",
                                      "Objects of the API server that are held, by kind.",
                                      {{"resource", kResources[kind]}});
    unreadable_[kind] = &metrics.AddCounter("crowdsurf_operator_objects_unreadable_total",
                                            "Objects of watches that could not be read, by kind.",
                                            {{"resource", kResources[kind]}});
    reflectors_.push_back(std::make_unique<Reflector>(client_, PathOf(kind), ReceiverOf(kind),
                                                      rng.Fork(PathOf(kind)), log, metrics));
  }
}

KubeCluster::~KubeCluster() { Stop(); }

void KubeCluster::Start() {
  for (auto& reflector : reflectors_) reflector->Start();
}

void KubeCluster::Stop() {
  stopping_ = true;
  news_.Close();
  for (auto& reflector : reflectors_) reflector->Stop();
}

std::string KubeCluster::PathOf(Kind kind) const {
  const std::string in = options_.space.empty() ? "" : "/namespaces/" + options_.space;
  if (kind == kJobs) return "/apis/crowdsurf.io/v1alpha1" + in + "/trainingjobs";
  if (kind == kPods) {
    return "/api/v1" + in + "/pods?labelSelector=" + std::string(kJobUidLabel);
  }
  return "/api/v1/nodes";
}

bool KubeCluster::Post(News news) {
  while (news_.size() + kProducers > kMostNews && !stopping_) std::this_thread::sleep_for(kPause);
  return news_.Post(std::move(news));
}

Reflector::Receiver KubeCluster::ReceiverOf(Kind kind) {
  return {[this, kind](KubeList list) {
            return Post({kind, std::move(list), {}});
          },
          [this, kind](WatchEvent event) {
            return Post({kind, std::nullopt, std::move(event)});
          }};
}

std::set<std::string> KubeCluster::Await(std::chrono::steady_clock::time_point deadline) {
  std::set<std::string> touched = std::exchange(assumed_, {});
  auto news = touched.empty() ? news_.Take(deadline) : news_.TryTake();
  while (news) {
    Take(*std::move(news), touched);
    news = news_.TryTake();
  }
  LookAtDeaths(touched);
  Sweep();
  ShowCaches();
  return touched;
}

void KubeCluster::ShowCaches() {
  const auto show = [&](Kind kind, const auto& cache) {
    cached_[kind]->Set(static_cast<double>(cache.objects().size()));
    unreadable_[kind]->Add(static_cast<double>(cache.unreadable()) - unreadable_[kind]->value());
  };
  show(kJobs, jobs_);
  show(kPods, pods_);
  show(kNodes, nodes_);
}

void KubeCluster::Take(News news, std::set<std::string>& touched) {
  if (news.report) return TakeReport(*news.report, touched);
  if (news.probed) return TakeProbe(news.probed->first, news.probed->second, touched);
  if (news.list) {
    TakeList(news.kind, *news.list, touched);
    return;
  }
  switch (news.kind) {
    case kJobs:
      TakeEvent(jobs_, news.event, touched);
      return;
    case kPods:
      unseen_.erase(controller::KeyOf(news.event.object));
      TakeEvent(pods_, news.event, touched);
      return;
    case kNodes:
      if (const std::string node = controller::KeyOf(news.event.object); !node.empty()) {
        gone_nodes_.erase(node);
      }
      TakeEvent(nodes_, news.event, touched);
      return;
  }
}

void KubeCluster::TakeList(Kind kind, const KubeList& list, std::set<std::string>& touched) {
  listed_[kind] = true;
  if (kind == kJobs) {
    for (const auto& change : jobs_.Replace(list.items)) Touch(change, touched);
    for (const auto& [key, job] : jobs_.objects()) touched.insert(key);
    sweep_at_ = options_.clock();
    return;
  }
  if (kind == kNodes) {
    gone_nodes_.clear();
    for (const auto& change : nodes_.Replace(list.items)) Touch(change, touched);
    ListenToNodes(touched);
    return;
  }
  for (const auto& change : pods_.Replace(list.items)) Touch(change, touched);
  const WallTime now = options_.clock();
  std::erase_if(unseen_, [&](const auto& own) {
    return pods_.Find(own.first) != nullptr || now - own.second.second > kListLag;
  });
  for (const auto& [key, own] : unseen_) {
    WatchEvent event;
    event.object = own.first;
    if (const auto change = pods_.Apply(event)) Touch(*change, touched);
  }
}

template <class T>
void KubeCluster::TakeEvent(ObjectCache<T>& cache, const WatchEvent& event,
                            std::set<std::string>& touched) {
  if constexpr (requires(T entry) { entry.version; }) {
    const T* known = cache.Find(controller::KeyOf(event.object));
    // News from before our own last write.
    if (known != nullptr && VersionOf(event.object) < known->version) return;
  }
  if (const auto change = cache.Apply(event)) Touch(*change, touched);
}

void KubeCluster::Touch(const ObjectCache<JobEntry>::Change& change,
                        std::set<std::string>& touched) {
  touched.insert(change.key);
  if (change.after) return;
  told_.erase(change.key);
  purses_.erase(change.key);
  explained_.erase(change.key);
  deaths_.Forget(change.key);
  deleted_on_word_.erase(change.key);
  objects_.Forget(change.before->job.uid);
  specs_.Forget(change.before->job.uid);
  if (options_.forget && !options_.forget(change.before->job.uid).ok()) {
    sweep_at_ = std::min(sweep_at_, options_.clock());
  }
}

void KubeCluster::Touch(const ObjectCache<PodEntry>::Change& change,
                        std::set<std::string>& touched) {
  if (change.before) {
    touched.insert(change.before->job);
    if (!change.after || change.after->facts.uid != change.before->facts.uid) {
      pod_of_uid_.erase(change.before->facts.uid);
    }
    if (!change.after || change.after->job != change.before->job) {
      std::set<std::string>& own = pods_of_[change.before->job];
      own.erase(change.key);
      if (own.empty()) pods_of_.erase(change.before->job);
    }
  }
  if (change.after) {
    touched.insert(change.after->job);
    pods_of_[change.after->job].insert(change.key);
    pod_of_uid_[change.after->facts.uid] = change.key;
  }
}

void KubeCluster::Touch(const ObjectCache<NodeEntry>::Change& change,
                        std::set<std::string>& touched) {
  if (!change.after) silent_.erase(change.key);
  for (const auto& [key, pod] : pods_.objects()) {
    if (pod.facts.node == change.key) touched.insert(pod.job);
  }
  ListenToNodes(touched);
}

void KubeCluster::ListenToNodes(std::set<std::string>& touched) {
  const auto& nodes = nodes_.objects();
  const bool heard = nodes.empty() || std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
                       return !node.second.facts.not_ready_since.has_value();
                     });
  if (!heard) {
    nodes_heard_since_ = WallTime::Infinite();
  } else if (nodes_heard_since_.infinite()) {
    nodes_heard_since_ = options_.clock();
    for (const auto& [key, job] : jobs_.objects()) touched.insert(key);
  }
}

// What the server answered to a write of ours: in the cache before its watch tells.
void KubeCluster::Assume(const nlohmann::json& pod) {
  const std::string key = controller::KeyOf(pod);
  const PodEntry* known = pods_.Find(key);
  if (known != nullptr && VersionOf(pod) < known->version) return;
  if (known == nullptr) unseen_[key] = {pod, options_.clock()};
  WatchEvent event;
  event.type = WatchEvent::Type::kModified;
  event.object = pod;
  // The answer may hold more news than our write: the job is looked at again.
  if (const auto change = pods_.Apply(event)) Touch(*change, assumed_);
}

std::vector<std::string> KubeCluster::Jobs() const {
  std::vector<std::string> keys;
  for (const auto& [key, job] : jobs_.objects()) keys.push_back(key);
  return keys;
}

std::optional<KubeCluster::AskedAgent> KubeCluster::AgentOf(const std::string& job) const {
  const JobEntry* entry = jobs_.Find(job);
  const auto own = pods_of_.find(job);
  if (entry == nullptr || own == pods_of_.end()) return std::nullopt;
  for (const std::string& key : own->second) {
    const PodEntry* pod = pods_.Find(key);
    if (pod == nullptr || pod->job_uid != entry->job.uid || pod->http.empty()) continue;
    if (pod->facts.ready_since && !pod->facts.deleted) return AskedAgent{pod->job_uid, pod->http};
  }
  return std::nullopt;
}

}  // namespace crowdsurf::controller
