#include <algorithm>

#include "operator/core/json_path.h"
#include "operator/edge/kube_cluster.h"

// KubeCluster and the dead: what peers report, how it is confirmed, and how that ages.
namespace crowdsurf::controller {
namespace {

constexpr Duration kLookAgain =
    Seconds(2);  // at jobs with open cases; a Lease goes stale meanwhile
// Longer than the minute that portions are counted over, and than a node that has died stays Ready.
constexpr Duration kRemembered = Seconds(120);

}  // namespace

void KubeCluster::CountDeaths(MetricRegistry& metrics) {
  for (const ReportFate fate :
       {ReportFate::kTaken, ReportFate::kStranger, ReportFate::kItself, ReportFate::kOtherJob,
        ReportFate::kUnknown, ReportFate::kGone, ReportFate::kFull}) {
    death_reports_[fate] =
        &metrics.AddCounter("crowdsurf_operator_death_reports_total",
                            "Workers that others of their job reported lost, by what became of it.",
                            {{"result", std::string(Name(fate))}});
  }
  for (const ProbeResult result :
       {ProbeResult::kAnswers, ProbeResult::kSilent, ProbeResult::kBlind}) {
    death_probes_[result] =
        &metrics.AddCounter("crowdsurf_operator_death_probes_total",
                            "Probes of agents that were reported lost, by result.",
                            {{"result", std::string(Name(result))}});
  }
}

// The watches' news come first: they wait for room, and nothing else makes up for them.
bool KubeCluster::HasRoom() const { return news_.size() < kMostNews / 2; }

bool KubeCluster::PostReport(DeathReport report) {
  if (!HasRoom()) return false;
  News news;
  news.report = std::move(report);
  return news_.Post(std::move(news));
}

bool KubeCluster::PostProbe(const std::string& uid, ProbeResult result) {
  if (!HasRoom()) return false;
  News news;
  news.probed.emplace(uid, result);
  return news_.Post(std::move(news));
}

void KubeCluster::TakeReport(const DeathReport& report, std::set<std::string>& touched) {
  const auto key = pod_of_uid_.find(report.reporter_uid);
  const PodEntry* reporter = key == pod_of_uid_.end() ? nullptr : pods_.Find(key->second);
  for (const std::string& name : report.dead) {
    const PodEntry* subject = pods_.Find(report.space + "/" + name);
    const ReportFate fate = deaths_.Take(options_.clock(), reporter, subject);
    death_reports_.at(fate)->Add();
    if (fate == ReportFate::kTaken) touched.insert(reporter->job);
  }
}

void KubeCluster::TakeProbe(const std::string& uid, ProbeResult result,
                            std::set<std::string>& touched) {
  death_probes_.at(result)->Add();
  const auto pod = pod_of_uid_.find(uid);
  log_.Info("an agent that is reported lost was probed",
            {{"pod", pod == pod_of_uid_.end() ? uid : pod->second}, {"result", Name(result)}});
  const std::string job = deaths_.Probed(options_.clock(), uid, result);
  if (!job.empty()) touched.insert(job);
}

void KubeCluster::LookAtDeaths(std::set<std::string>& touched) {
  if (deaths_.cases() == 0 && deleted_on_word_.empty()) leases_.clear();
  if (deaths_.cases() == 0) return;
  const WallTime now = options_.clock();
  if (now - deaths_looked_at_ < kLookAgain) return;
  deaths_looked_at_ = now;
  for (const std::string& job : deaths_.Jobs()) touched.insert(job);
}

void KubeCluster::JudgeDeaths(const std::string& job, JobSnapshot& snapshot) {
  const WallTime now = options_.clock();
  if (const auto deleted = deleted_on_word_.find(job); deleted != deleted_on_word_.end()) {
    std::erase_if(deleted->second, [&](const auto& one) { return now - one.at >= kRemembered; });
    for (const DeletedOnWord& one : deleted->second) {
      snapshot.deleted_on_word.push_back(one.at);
      // Until its kubelet is heard: a machine that comes back takes workers again.
      (void)LeaseIsStale(one.node);
      if (!leases_[one.node].age.RenewedAfter(one.at)) snapshot.suspect_nodes.push_back(one.node);
    }
    if (deleted->second.empty()) deleted_on_word_.erase(deleted);
  }
  if (deaths_.cases() == 0) return Suspect(snapshot);
  std::vector<const PodEntry*> pods;
  for (const std::string& key : pods_of_.at(job)) {
    const PodEntry* pod = pods_.Find(key);
    if (pod != nullptr && pod->job_uid == snapshot.job.uid) pods.push_back(pod);
  }
  const auto review =
      deaths_.Look(now, job, pods, [this](const std::string& node) { return LeaseIsStale(node); });
  const bool wait = client_.OutageLingers() > Duration();  // for the kubelets' word
  for (PodFacts& facts : snapshot.pods) {
    const auto found = review.findings.find(facts.uid);
    if (found == review.findings.end()) continue;
    facts.reported_dead = found->second.dead && !wait;
    facts.lease_stale = found->second.lease_stale;
    if (facts.reported_dead) snapshot.suspect_nodes.push_back(facts.node);
  }
  Suspect(snapshot);
  for (const DeathReports::Probe& probe : review.probes) {
    if (options_.probe) (void)options_.probe(probe);
  }
}

// A scheduler prefers the machine that is empty because it has just died. Where no other is Ready
// there is nothing to choose.
void KubeCluster::Suspect(JobSnapshot& snapshot) const {
  std::vector<std::string>& suspects = snapshot.suspect_nodes;
  std::sort(suspects.begin(), suspects.end());
  suspects.erase(std::unique(suspects.begin(), suspects.end()), suspects.end());
  std::erase_if(suspects, [&](const std::string& node) { return nodes_.Find(node) == nullptr; });
  const auto& all = nodes_.objects();
  const bool choice = std::any_of(all.begin(), all.end(), [&](const auto& node) {
    return !node.second.facts.not_ready_since &&
           !std::binary_search(suspects.begin(), suspects.end(), node.first);
  });
  if (!choice) suspects.clear();
}

bool KubeCluster::LeaseIsStale(const std::string& node) {
  const WallTime now = options_.clock();
  WatchedLease& known = leases_[node];
  if (!known.asked.unset() && now - known.asked < kLeaseGap) return known.age.Stale();
  known.asked = now;
  const auto lease =
      client_.Get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + node);
  const nlohmann::json* renewed = lease.ok() ? At(*lease, "spec.renewTime") : nullptr;
  if (renewed != nullptr && renewed->is_string()) known.age.Saw(now, *renewed);
  return known.age.Stale();
}

}  // namespace crowdsurf::controller
