// KubeCluster's questions: what a decision wants to know besides what the watches tell. The host's
// thread asks and does not wait; what the server answers comes back as news.
#include <absl/strings/numbers.h>

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "operator/core/job/json_path.h"
#include "operator/edge/kube/kube_cluster.h"
#include "operator/edge/reconcile/parallel_requests.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr int kRepeated = 3;  // times that an event came; kubelet tries again and again
constexpr Duration kAskAgain = Seconds(1);  // after a question without an answer
constexpr Duration kLost = Seconds(60);     // a question: its requests end within some ten seconds
constexpr size_t kMaxAskedNodes = 4096;     // above it, nodes are asked for anew

// "<job>-<index>-<incarnation>"
std::optional<std::pair<int, int>> PlaceOf(const std::string& pod) {
  const size_t second = pod.rfind('-');
  if (second == std::string::npos || second == 0) return std::nullopt;
  const size_t first = pod.rfind('-', second - 1);
  std::pair<int, int> place;
  if (first == std::string::npos ||
      !absl::SimpleAtoi(pod.substr(first + 1, second - first - 1), &place.first) ||
      !absl::SimpleAtoi(pod.substr(second + 1), &place.second)) {
    return std::nullopt;
  }
  return place;
}

}  // namespace

// Pods that the status knows and the cache lacks: another leader made them a moment ago, or they
// are gone.
void KubeCluster::AskPods(const TrainingJob& job, std::span<const std::string> names) {
  const std::string key = job.space + "/" + job.name;
  JobRecord* record = records_.Find(key, job.uid);
  if (record == nullptr) return;
  JobRecord::Gone& gone = record->gone;
  const WallTime now = options_.clock();
  if (!gone.asked.unset() && now - gone.asked < (gone.under_way ? kLost : kAskAgain)) return;
  PodAnswers answers{key, job.uid, {}, {}};
  const auto ask = [this, answers = std::move(answers),
                    names = std::vector(names.begin(), names.end()),
                    path = "/api/v1/namespaces/" + job.space + "/pods/"]() mutable {
    const auto pods =
        ParallelRequests(names.size(), [&](size_t i) { return beside().Get(path + names[i]); });
    for (size_t i = 0; i < pods.size(); ++i) {
      if (!pods[i].ok()) {
        absl::IsNotFound(pods[i].status()) ? answers.gone.push_back(names[i])
                                           : void(answers.all = false);
        continue;
      }
      auto entry = ObservePod(*pods[i]);
      // Of another owner, or without its labels: it is no worker of this job.
      if (!entry || entry->job_uid != answers.job_uid) {
        answers.gone.push_back(names[i]);
      } else {
        answers.seen.push_back(
            {controller::KeyOf(*pods[i]), VersionOf(*pods[i]), std::move(entry)});
      }
    }
    (void)news_.PostWaiting(std::move(answers));
  };
  gone.under_way = errands_.Post(ask);
  gone.asked = now;
}

void KubeCluster::Take(PodAnswers answers, std::set<std::string>& touched) {
  for (Sighting<PodEntry>& pod : answers.seen) Take(std::move(pod), touched);
  JobRecord* record = records_.Find(answers.job, answers.job_uid);
  if (record == nullptr) return;
  JobRecord::Gone& gone = record->gone;
  gone.under_way = false;
  gone.asked = answers.all ? WallTime() : options_.clock();
  for (const std::string& name : answers.gone) {
    if (const auto place = PlaceOf(name)) gone.incarnations[place->first] = place->second;
  }
  touched.insert(answers.job);
}

// The record forgets indices that the status has forgotten: no question names them any more.
void KubeCluster::AddGone(const JobEntry& entry, JobRecord& record, JobSnapshot& snapshot) const {
  snapshot.asks_pods = true;
  std::erase_if(record.gone.incarnations, [&](const auto& one) {
    const auto known = entry.status.incarnations.find(one.first);
    return known == entry.status.incarnations.end() || known->second > one.second;
  });
  for (const auto& [index, incarnation] : record.gone.incarnations)
    snapshot.gone_pods.insert(PodName(entry.job.name, index, incarnation));
  if (!record.gone.asked.unset())
    snapshot.look_again = std::min(snapshot.look_again,
                                   record.gone.asked + (record.gone.under_way ? kLost : kAskAgain));
}

// A server may take seconds for it.
bool KubeCluster::AskWhatItsEventsSay(const std::string& job, const JobSnapshot& snapshot,
                                      const std::string& pod_uid) {
  const std::string path =
      "/api/v1/namespaces/" + snapshot.job.space +
      "/events?limit=50&fieldSelector=type=Warning,involvedObject.uid=" + pod_uid;
  return errands_.Post([this, path, said = Said{job, snapshot.job.uid, pod_uid, ""}]() mutable {
    const auto events = beside().Get(path);
    if (!events.ok()) return;
    Each(*events, "items", [&](const json& event) {  // FailedMount, FailedCreatePodSandBox, ...
      const json* count = Member(&event, "count");
      const bool often = count != nullptr && count->is_number() && *count >= kRepeated;
      if (!often || TextAt(event, "reason").rfind("Failed", 0) != 0) return;
      said.message = CutText(TextAt(event, "message"), kMaxOutputInStatus);
    });
    if (HasRoom()) (void)news_.Post(std::move(said));
  });
}

void KubeCluster::Take(const Said& said, std::set<std::string>& touched) {
  JobRecord* record = records_.Find(said.job, said.job_uid);
  if (record == nullptr || record->explained.uid != said.pod_uid) return;
  if (std::exchange(record->explained.message, said.message) != said.message) {
    touched.insert(said.job);
  }
}

// The pods' watch may run ahead of the nodes': ask before calling a node gone.
void KubeCluster::AskForNodes(const std::set<std::string>& names) {
  const WallTime now = options_.clock();
  std::vector<std::string> due;
  for (const std::string& name : names) {
    const auto asked = asked_nodes_.find(name);
    const bool again = asked == asked_nodes_.end() || now - asked->second >= kLeaseGap;
    if (!gone_nodes_.contains(name) && again && due.size() < kMaxLeases) due.push_back(name);
  }
  if (due.empty()) return;
  const bool posted = errands_.Post([this, due] {
    const auto found = ParallelRequests(
        due.size(), [&](size_t i) { return beside().Get("/api/v1/nodes/" + due[i]).status(); });
    NodeAnswers answers;
    for (size_t i = 0; i < due.size(); ++i) {
      if (absl::IsNotFound(found[i])) answers.gone.push_back(due[i]);
    }
    (void)news_.PostWaiting(std::move(answers));
  });
  if (!posted) return;
  if (asked_nodes_.size() >= kMaxAskedNodes) asked_nodes_.clear();
  for (const std::string& name : due) asked_nodes_[name] = now;
}

void KubeCluster::Take(const NodeAnswers& answers, std::set<std::string>& touched) {
  for (const std::string& name : answers.gone) {
    // Its watch may have told of it meanwhile.
    if (nodes_.Find(name) != nullptr || !gone_nodes_.insert(name).second) continue;
    asked_nodes_.erase(name);
    if (const auto on = pods_on_.find(name); on != pods_on_.end()) {
      for (const auto& [job, pods] : on->second) touched.insert(job);
    }
  }
}

// Nodes that are not Ready, those whose workers are reported dead, and where some were.
std::vector<std::string> KubeCluster::LeasesDue(const std::string& job, const JobRecord& record) {
  const WallTime now = options_.clock();
  std::map<std::string, WallTime> due;  // and when they were asked for last
  const auto want = [&](auto& known, const std::string& node) {
    const WallTime asked = known[node].asked;
    if (!asked.unset() && now - asked < kLeaseGap) return;
    const auto [at, fresh] = due.try_emplace(node, asked);
    if (!fresh) at->second = std::min(at->second, asked);
  };
  if (const auto own = pods_of_.find(job); own != pods_of_.end()) {
    for (const std::string& key : own->second) {
      const PodEntry* pod = pods_.Find(key);
      if (pod == nullptr || pod->facts.node.empty()) continue;
      const NodeEntry* node = nodes_.Find(pod->facts.node);
      if (node != nullptr && node->facts.not_ready_since) want(silent_, pod->facts.node);
      if (deaths_.Open(pod->facts.uid)) want(leases_, pod->facts.node);
    }
  }
  for (const JobRecord::DeletedOnWord& one : record.deleted_on_word) want(leases_, one.node);
  std::vector<std::string> nodes;
  nodes.reserve(due.size());
  for (const auto& [node, asked] : due) nodes.push_back(node);
  std::sort(nodes.begin(), nodes.end(), [&](const std::string& a, const std::string& b) {
    return std::tie(due[a], a) < std::tie(due[b], b);
  });
  // Those read longest ago come first, so each node has its turn.
  nodes.resize(std::min(nodes.size(), kMaxLeases));
  return nodes;
}

// Side by side: of a zone that goes there are hundreds.
void KubeCluster::AskForLeases(const std::string& job, const JobRecord& record) {
  const std::vector<std::string> nodes = LeasesDue(job, record);
  if (nodes.empty()) return;
  const bool posted = errands_.Post([this, nodes] {
    const auto read = ParallelRequests(nodes.size(), [&](size_t i) {
      return beside().Get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" +
                          nodes[i]);
    });
    LeaseAnswers answers{.read = nodes, .renewed = {}};
    for (size_t i = 0; i < nodes.size(); ++i) {
      const json* renewed = read[i].ok() ? At(*read[i], "spec.renewTime") : nullptr;
      if (renewed != nullptr && renewed->is_string())
        answers.renewed.emplace_back(nodes[i], renewed->get<std::string>());
    }
    (void)news_.PostWaiting(std::move(answers));
  });
  if (!posted) return;
  const WallTime now = options_.clock();
  for (const std::string& node : nodes) {
    if (const auto it = leases_.find(node); it != leases_.end()) it->second.asked = now;
    if (const auto it = silent_.find(node); it != silent_.end()) it->second.asked = now;
  }
}

// A read that failed ages no Lease. It is an answer all the same: a node may have none.
void KubeCluster::Take(const LeaseAnswers& answers, std::set<std::string>& touched) {
  const WallTime now = options_.clock();
  for (const std::string& node : answers.read) {
    if (const auto it = silent_.find(node); it != silent_.end()) it->second.answered = now;
    if (const auto on = pods_on_.find(node); on != pods_on_.end()) {
      for (const auto& [job, pods] : on->second) touched.insert(job);
    }
  }
  for (const auto& [node, renewed] : answers.renewed) {
    if (const auto it = leases_.find(node); it != leases_.end()) it->second.age.Saw(now, renewed);
    if (const auto it = silent_.find(node); it != silent_.end()) {
      Silent& known = it->second;
      // The first value is of unknown age, so only a change is a sign of life.
      if (!known.renewed.empty() && known.renewed != renewed) known.renewed_at = now;
      known.renewed = renewed;
    }
  }
}

}  // namespace crowdsurf::controller
