#include <algorithm>

#include "operator/edge/kube/kube_cluster.h"

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
bool KubeCluster::HasRoom() const { return news_.size() < kMaxNews / 2; }

bool KubeCluster::PostReport(DeathReport report) {
  if (!HasRoom()) return false;
  return news_.Post(std::move(report));
}

bool KubeCluster::PostProbe(const std::string& uid, ProbeResult result) {
  if (!HasRoom()) return false;
  return news_.Post(Probed(uid, result));
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
  // Old ages would mislead: a Lease that nobody watched looks stale at the next report.
  if (deaths_.cases() == 0) {
    bool deleted = false;
    if (!leases_.empty()) {
      records_.ForEach([&](const JobRecord& one) { deleted |= !one.deleted_on_word.empty(); });
    }
    if (!deleted) leases_.clear();
    return;
  }
  const WallTime now = options_.clock();
  if (now - deaths_looked_at_ < kLookAgain) return;
  deaths_looked_at_ = now;
  for (const std::string& job : deaths_.Jobs()) touched.insert(job);
}

void KubeCluster::JudgeDeaths(const std::string& job, JobRecord& record, JobSnapshot& snapshot) {
  const WallTime now = options_.clock();
  std::erase_if(record.deleted_on_word,
                [&](const auto& one) { return now - one.at >= kRemembered; });
  for (const JobRecord::DeletedOnWord& one : record.deleted_on_word) {
    snapshot.deleted_on_word.push_back(one.at);
    // Until its kubelet is heard: a machine that comes back takes workers again.
    const auto lease = leases_.find(one.node);
    const bool heard = lease != leases_.end() && lease->second.age.RenewedAfter(one.at);
    if (!heard) snapshot.suspect_nodes.push_back(one.node);
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
    return !node.second.value.facts.not_ready_since &&
           !std::binary_search(suspects.begin(), suspects.end(), node.first);
  });
  if (!choice) suspects.clear();
}

// Compared with itself only: the kubelet's clock may differ from ours. Without the right to read
// Leases, or without one, the condition of the node is all that is known.
std::optional<WallTime> KubeCluster::RenewedAt(const std::string& node, const NodeFacts& facts) {
  if (!facts.not_ready_since) silent_.erase(node);
  const auto known = silent_.find(node);
  if (known == silent_.end()) return std::nullopt;
  // Its Lease is being read: nobody is given up by what an earlier read has shown.
  return known->second.awaited() ? options_.clock() : known->second.renewed_at;
}

bool KubeCluster::LeaseIsStale(const std::string& node) const {
  const auto known = leases_.find(node);
  return known != leases_.end() && known->second.age.Stale();
}

}  // namespace crowdsurf::controller
