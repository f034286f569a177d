#include "operator/core/decide/job_metrics.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/manifest/field_defaults.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/reasons.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

// From a tenth of a second to the ten minutes that a cloud may need for a node.
const std::vector<double> kHealing = {.1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600};
// Clouds give between 15 s and two minutes of notice.
const std::vector<double> kNotice = {5, 10, 15, 20, 25, 30, 60, 90, 120, 300};

constexpr std::array kDisruptions = {
    reason::kNodeGone,   reason::kNodeMarked,    reason::kNodeNotReady,
    reason::kEvicted,    reason::kRefusedByNode, reason::kContainerLost,
    reason::kPodDeleted, reason::kAgentCrashed,  reason::kPeersReportedDead};

MetricLabels With(MetricLabels labels, std::string_view name, std::string_view value) {
  labels.emplace(name, value);
  return labels;
}

// The totals are in the status and outlive this process. A counter follows them and never falls.
void RaiseTo(Counter& counter, double total) {
  if (total > counter.value()) counter.Add(total - counter.value());
}

const char* StateOf(const PodFacts& pod) {
  if (pod.phase == PodPhase::kSucceeded || pod.phase == PodPhase::kFailed) return "ended";
  if (pod.deleted) return "leaving";
  return pod.ready_since ? "training" : "pending";
}

// The largest share of any target that is an amount: the first that is met ends the job. nullopt
// when there is none, or nothing is known yet.
std::optional<double> ShareOf(const json& target, const TrainingJobStatus& status, WallTime now) {
  if (status.progress.target_met) return 1;
  const double seconds = status.running_time ? (now - *status.running_time).seconds() : 0;
  std::optional<double> most;
  for (const auto& [name, done] :
       {std::pair("samples", static_cast<double>(status.progress.samples)),
        std::pair("steps", static_cast<double>(status.progress.step)),
        std::pair("seconds", seconds)}) {
    const json* wanted = Member(&target, name);
    if (wanted == nullptr || !wanted->is_number() || wanted->get<double>() <= 0) continue;
    most = std::max(most.value_or(0), std::clamp(done / wanted->get<double>(), 0.0, 1.0));
  }
  return most;
}

std::string StrategyOf(const TrainingJob& job) {
  const json* strategy = Member(&job.spec.averaging, "strategy");
  return strategy != nullptr && strategy->is_string()
             ? strategy->get<std::string>()
             : std::string(manifest::TextDefault("averaging.strategy"));
}

}  // namespace

JobMetrics::JobMetrics(MetricRegistry& registry)
    : registry_(registry),
      startup_seconds_(registry.AddHistogram(
          "crowdsurf_operator_job_startup_seconds",
          "From the start of a job to its first worker that trains.", kHealing)),
      replacement_seconds_(registry.AddHistogram(
          "crowdsurf_operator_replacement_seconds",
          "From asking for a replacement, at the mark, to its training.", kHealing)),
      notice_lead_seconds_(registry.AddHistogram(
          "crowdsurf_operator_notice_lead_seconds",
          "Time that workers were given between a notice and the end of their node.", kNotice)),
      forced_deletions_(registry.AddCounter("crowdsurf_operator_forced_deletions_total",
                                            "Pods deleted without waiting for their node.")) {}

JobMetrics::Job& JobMetrics::Of(const std::string& key, const JobSnapshot& seen) {
  // Counters of a job that had the name before would hide this one's until they are passed.
  if (const auto known = jobs_.find(key); known != jobs_.end() && known->second.uid != seen.job.uid)
    Forget(key);
  const auto [it, fresh] = jobs_.try_emplace(key);
  if (fresh) {
    it->second.uid = seen.job.uid;
    // Local mode has no namespaces, and to Prometheus an empty label is none.
    const std::string& space = seen.job.space;
    it->second.labels = {{"namespace", space.empty() ? "local" : space},
                         {"training_job", seen.job.name}};
    // A job that ran before this process saw it was measured by an earlier leader.
    it->second.was_running = seen.status.running_time.has_value();
  }
  return it->second;
}

void JobMetrics::Show(const std::string& key, const JobSnapshot& seen, const Plan& plan,
                      WallTime now) {
  Job& job = Of(key, seen);
  registry_
      .AddGauge("crowdsurf_job_info", "1; the strategy of a job.",
                {{"namespace", job.labels.at("namespace")},
                 {"training_job", seen.job.name},
                 {"strategy", StrategyOf(seen.job)}})
      .Set(1);
  ShowWorkers(job, seen);
  ShowStatus(job, seen, plan.status, now);
  ShowHealing(job, seen, plan, now);
}

void JobMetrics::ShowWorkers(const Job& job, const JobSnapshot& seen) {
  // All combinations have a series, also at zero: one that ends looks like missing data.
  std::map<std::pair<std::string_view, std::string_view>, int> counts;
  for (const char* state : {"pending", "training", "leaving", "ended"}) {
    for (const char* capacity : {"Spot", "OnDemand"}) counts[{state, capacity}] = 0;
  }
  for (const PodFacts& pod : seen.pods) {
    ++counts[{StateOf(pod), pod.capacity == CapacityType::kOnDemand ? "OnDemand" : "Spot"}];
  }
  for (const auto& [what, count] : counts) {
    registry_
        .AddGauge("crowdsurf_job_workers", "Workers of a job, by state and capacity.",
                  {{"namespace", job.labels.at("namespace")},
                   {"training_job", job.labels.at("training_job")},
                   {"state", std::string(what.first)},
                   {"capacity_type", std::string(what.second)}})
        .Set(count);
  }
  registry_.AddGauge("crowdsurf_job_workers_desired", "Workers that the job asks for.", job.labels)
      .Set(seen.job.spec.suspend ? 0 : seen.job.spec.replicas);
}

void JobMetrics::ShowStatus(const Job& job, const JobSnapshot& seen,
                            const TrainingJobStatus& status, WallTime now) {
  for (const std::string_view name : kConditionNames) {
    const auto it =
        std::find_if(status.conditions.begin(), status.conditions.end(),
                     [&](const Condition& condition) { return Name(condition.type) == name; });
    registry_
        .AddGauge("crowdsurf_job_condition", "1 while a condition of the job is True, else 0.",
                  With(job.labels, "condition", name))
        .Set(it != status.conditions.end() && it->on ? 1 : 0);
  }
  for (const std::string_view why : kDisruptions) {
    const auto it = status.disruptions_by_reason.find(std::string(why));
    RaiseTo(registry_.AddCounter("crowdsurf_job_disruptions_total",
                                 "Workers that the platform took, by reason.",
                                 With(job.labels, "reason", why)),
            it == status.disruptions_by_reason.end() ? 0 : static_cast<double>(it->second));
  }
  RaiseTo(registry_.AddCounter("crowdsurf_job_failures_total",
                               "Workers whose own code ended in failure.", job.labels),
          static_cast<double>(status.failures));
  const Progress& progress = status.progress;
  registry_.AddGauge("crowdsurf_job_step", "Steps of the furthest worker.", job.labels)
      .Set(static_cast<double>(progress.step));
  registry_.AddGauge("crowdsurf_job_samples", "Samples of the whole job.", job.labels)
      .Set(static_cast<double>(progress.samples));
  registry_
      .AddGauge("crowdsurf_job_averaging", "Number of the last committed averaging.", job.labels)
      .Set(static_cast<double>(progress.averaging));
  // No series until a loss is known: a zero would look like a perfect model.
  if (progress.loss) {
    registry_.AddGauge("crowdsurf_job_loss", "Last loss that an agent told.", job.labels)
        .Set(*progress.loss);
  }
  if (const auto share = ShareOf(seen.job.spec.target, status, now)) {
    registry_
        .AddGauge("crowdsurf_job_progress_ratio", "Done share of the target, 0 to 1.", job.labels)
        .Set(*share);
  }
  if (status.start_time) {
    registry_
        .AddGauge("crowdsurf_job_start_time_seconds", "When the job began, Unix time.", job.labels)
        .Set(static_cast<double>(status.start_time->nanoseconds()) / 1e9);
  }
}

void JobMetrics::ShowHealing(Job& job, const JobSnapshot& seen, const Plan& plan, WallTime now) {
  if (!job.was_running && plan.status.running_time && plan.status.start_time) {
    startup_seconds_.Observe((*plan.status.running_time - *plan.status.start_time).seconds());
    job.was_running = true;
  }
  std::set<std::string> there;
  for (const PodFacts& pod : seen.pods) {
    there.insert(pod.name);
    const auto it = job.replacing.find(pod.name);
    if (it == job.replacing.end() || !pod.ready_since) continue;
    replacement_seconds_.Observe((*pod.ready_since - it->second).seconds());
    job.replacing.erase(it);
  }
  // One that went before it trained is measured by its own replacement.
  std::erase_if(job.replacing, [&](const auto& one) { return !there.contains(one.first); });
  for (const CreatePod& create : plan.creates) {
    if (create.reason == reason::kReplacement) job.replacing.emplace(create.name, now);
  }
  for (const DeletePod& pod : plan.deletes) {
    if (pod.grace && *pod.grace == Duration()) forced_deletions_.Add();
  }
  for (const AnnotatePod& note : plan.annotations) {
    if (note.reason != reason::kNotice || note.value.empty()) continue;
    const auto pod = std::find_if(seen.pods.begin(), seen.pods.end(),
                                  [&](const PodFacts& p) { return p.uid == note.uid; });
    if (pod == seen.pods.end()) continue;
    const auto node = seen.nodes.find(pod->node);
    if (node == seen.nodes.end() || !node->second.mark || !node->second.mark->deadline) continue;
    // An operator that was away tells late, perhaps after the deadline.
    notice_lead_seconds_.Observe(std::max(0.0, (*node->second.mark->deadline - now).seconds()));
  }
}

void JobMetrics::Forget(const std::string& key) {
  const auto it = jobs_.find(key);
  if (it == jobs_.end()) return;
  registry_.Drop(it->second.labels);
  jobs_.erase(it);
}

void JobMetrics::Clear() {
  while (!jobs_.empty()) Forget(std::string(jobs_.begin()->first));
}

}  // namespace crowdsurf::controller
