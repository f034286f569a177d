// JobMetrics: what the operator says of each job, and how fast it heals them: crowdsurf_job_* and
// the histograms of crowdsurf_operator_*.
//
// The reconciler shows it every turn's snapshot and plan. What it holds is of a uid: a job that was
// made again under its name begins with series of its own. Series carry the labels namespace and
// training_job (not `job`, which is Prometheus' own), everything else is a closed set, and all of
// a job's series go with the job or with the lead. Counters repeat the totals of its status, so a
// new leader goes on where the last one ended. Single sequence, but for scrapes. Bound: about forty
// series and the unfinished replacements of each job. Source: docs/metrics.md.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/metrics.h"
#include "operator/core/port/plan.h"
#include "operator/core/port/snapshot.h"

namespace crowdsurf::controller {

class JobMetrics {
 public:
  explicit JobMetrics(MetricRegistry& registry);

  // After a turn of job `key` that was carried out and whose status is written.
  void Show(const std::string& key, const JobSnapshot& seen, const Plan& plan, WallTime now);
  void Forget(const std::string& key);  // the job is gone
  void Clear();                         // this process does not lead (any more)

 private:
  struct Job {
    std::string uid;
    MetricLabels labels;
    bool was_running = false;
    std::map<std::string, WallTime> replacing;  // pod -> when it was asked for
  };
  Job& Of(const std::string& key, const JobSnapshot& seen);
  void ShowWorkers(const Job& job, const JobSnapshot& seen);
  void ShowStatus(const Job& job, const JobSnapshot& seen, const TrainingJobStatus& status,
                  WallTime now);
  void ShowHealing(Job& job, const JobSnapshot& seen, const Plan& plan, WallTime now);

  MetricRegistry& registry_;
  Histogram& startup_seconds_;
  Histogram& replacement_seconds_;
  Histogram& notice_lead_seconds_;
  Counter& forced_deletions_;
  std::map<std::string, Job> jobs_;
};

}  // namespace crowdsurf::controller
