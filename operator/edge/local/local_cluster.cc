#include "operator/edge/local/local_cluster.h"

#include <algorithm>

#include "base/check.h"
#include "operator/core/job/local_rules.h"
#include "operator/edge/local/run_cleanup.h"

// The Cluster port and the spot market's side; what happens by itself is in local_events.cc.
namespace crowdsurf::controller {

StatusOr<JobSnapshot> LocalCluster::Observe(const std::string& job) {
  if (job != job_.name) return absl::NotFoundError(absl::StrCat("there is no job ", job));
  JobSnapshot snapshot;
  snapshot.job = job_;
  snapshot.status = status_;
  snapshot.nodes = nodes_;
  snapshot.progress = progress_;
  for (const auto& [name, entry] : pods_) {
    snapshot.pods.push_back(entry.shown);
    if (MayHaveTrained(entry)) snapshot.pods.back().ever_ready = true;
  }
  return snapshot;
}

void LocalCluster::Say(ClusterEvent::Kind kind, const std::string& pod, std::string detail,
                       EventType type) {
  events_.push_back({kind, clock_(), pod, std::move(detail), type});
}

Status LocalCluster::Place(Entry& entry) {
  LocalPod& pod = *entry.pod;
  PodFacts& facts = pod.facts;
  // Only spot machines come from the market; others are always to be had.
  if (!options_.nodes_from_market || facts.capacity == CapacityType::kOnDemand) {
    facts.node = (facts.capacity == CapacityType::kOnDemand ? "ondemand-" : "spot-") +
                 std::to_string(next_node_++);
    nodes_[facts.node];
  } else {
    const auto is_free = [&](const auto& node) {
      return !node.second.mark && std::none_of(pods_.begin(), pods_.end(), [&](const auto& other) {
        return other.second.pod->facts.node == node.first;
      });
    };
    const auto free = std::find_if(nodes_.begin(), nodes_.end(), is_free);
    if (free == nodes_.end()) {
      facts.waiting_reason = std::string(reason::kNoSpotCapacity);
      facts.waiting_message = "the market has no machine";
      entry.shown = facts;
      return absl::OkStatus();
    }
    facts.node = free->first;
  }
  facts.waiting_reason.clear();
  facts.waiting_message.clear();
  Status started = pod.Start(job_, signer_.Admit(facts.name));
  entry.shown = facts;
  return started;
}

void LocalCluster::PlaceWaiting() {
  for (auto& [name, entry] : pods_) {
    PodFacts& facts = entry.pod->facts;
    if (!facts.node.empty() || facts.deleted) continue;
    Status placed = Place(entry);
    if (!placed.ok()) {
      // Decide replaces it like a pod that kubelet has refused.
      facts.phase = PodPhase::kFailed;
      facts.waiting_message = std::string(placed.message());
      entry.shown = facts;
    }
    changed_ = true;
  }
}

Status LocalCluster::Create(const TrainingJob& job, const CreatePod& create) {
  CHECK_EQ(job.name, job_.name);
  // A plan may be carried out twice; the name says that this part is done.
  if (pods_.count(create.name)) return absl::OkStatus();
  Entry& entry = pods_[create.name];
  entry.pod = std::make_unique<LocalPod>(options_.pods, job_, create, clock_());
  Status placed = Place(entry);
  if (!placed.ok()) {
    entry.pod->Kill();
    // Nothing of it stays, because the next turn asks for the same name.
    signer_.Dismiss(create.name);
    nodes_.erase(entry.pod->facts.node);
    pods_.erase(create.name);
    return placed;
  }
  Say(ClusterEvent::Kind::kCreated, create.name, std::string(create.reason));
  changed_ = true;
  return absl::OkStatus();
}

Status LocalCluster::Delete(const DeletePod& order) {
  const auto it = pods_.find(order.name);
  if (it == pods_.end()) return absl::OkStatus();
  LocalPod& pod = *it->second.pod;
  if (pod.facts.uid != order.uid) return absl::FailedPreconditionError("another uid");
  const WallTime now = clock_();
  const Duration grace = order.grace.value_or(job_.spec.disruption.grace);
  if (!pod.facts.deleted) {
    pod.facts.deleted = now;
    pod.facts.grace = grace;
  }
  // It is leaving, so it gets no certificate any more.
  signer_.Dismiss(order.name);
  if (grace == Duration()) {
    pod.Kill();
  } else {
    pod.Stop(now + grace);
  }
  it->second.shown = pod.facts;
  changed_ = true;
  return absl::OkStatus();
}

Status LocalCluster::Annotate(const AnnotatePod& note) {
  const auto it = pods_.find(note.name);
  if (it == pods_.end()) return absl::NotFoundError(note.name);
  it->second.pod->Annotate(note.key, note.value);
  it->second.shown = it->second.pod->facts;
  return absl::OkStatus();
}

Status LocalCluster::WriteStatus(const TrainingJob&, const TrainingJobStatus& status) {
  status_ = status;
  return absl::OkStatus();
}

void LocalCluster::Record(const TrainingJob&, const Event& event) {
  Say(ClusterEvent::Kind::kTold, "", event.message, event.type);
}

void LocalCluster::AddNode(const std::string& node) {
  nodes_[node];
  PlaceWaiting();
}

void LocalCluster::TakeNode(const std::string& node, std::optional<Duration> notice) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  changed_ = true;
  if (notice && *notice > Duration()) {
    // The first notice stands: a second must not move its deadline.
    if (it->second.mark) return;
    it->second.mark = Mark{"SpotInterruption", clock_() + *notice, false};
    for (const auto& [name, entry] : pods_) {
      if (entry.pod->facts.node == node) Say(ClusterEvent::Kind::kNoticed, name, node);
    }
    return;
  }
  nodes_.erase(it);
  for (auto& [name, entry] : pods_) {
    PodFacts& facts = entry.pod->facts;
    if (facts.node != node) continue;
    entry.pod->Kill();
    Say(ClusterEvent::Kind::kTaken, name, node);
    facts.ready_since.reset();
    entry.shown = facts;
  }
}

std::vector<std::string> LocalCluster::TakeableNodes() const {
  std::vector<std::string> nodes;
  for (const auto& [name, entry] : pods_) {
    const PodFacts& facts = entry.pod->facts;
    const auto node = nodes_.find(facts.node);
    // The market owns no on-demand machine, and of who leaves or has ended nothing is left to take.
    if (facts.capacity == CapacityType::kOnDemand || facts.deleted || facts.trainer) continue;
    if (node != nodes_.end() && !node->second.mark) nodes.push_back(facts.node);
  }
  return nodes;
}

void LocalCluster::Apply(TrainingJobSpec spec) {
  job_.spec = std::move(spec);
  // As the API server counts changes of a spec.
  ++job_.generation;
  changed_ = true;
}

std::vector<LocalWorker> LocalCluster::Workers() const {
  std::vector<LocalWorker> workers;
  for (const auto& [name, entry] : pods_) {
    workers.push_back({&entry.shown, entry.summary ? &*entry.summary : nullptr, entry.received_at,
                       entry.pod->http});
  }
  std::sort(workers.begin(), workers.end(), [](const LocalWorker& a, const LocalWorker& b) {
    return std::pair(a.facts->index, a.facts->incarnation) <
           std::pair(b.facts->index, b.facts->incarnation);
  });
  return workers;
}

std::vector<ClusterEvent> LocalCluster::TakeEvents() { return std::exchange(events_, {}); }

std::vector<pid_t> LocalCluster::Processes() const {
  std::vector<pid_t> all;
  for (const auto& [name, entry] : pods_) {
    const std::vector<pid_t> of_pod = entry.pod->Processes();
    all.insert(all.end(), of_pod.begin(), of_pod.end());
  }
  return all;
}

void LocalCluster::StopAll(Duration grace) {
  for (auto& [name, entry] : pods_) {
    if (!entry.pod->facts.deleted) entry.pod->facts.deleted = clock_();
    entry.pod->Stop(clock_() + grace);
  }
}

void LocalCluster::KillAll() {
  for (auto& [name, entry] : pods_) {
    if (!entry.pod->facts.deleted) entry.pod->facts.deleted = clock_();
    entry.pod->Kill();
  }
}

}  // namespace crowdsurf::controller
