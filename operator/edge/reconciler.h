// Reconciler: observe, decide, carry out; the same class for Kubernetes and for local mode.
//
// One call is one turn for one job: it reads everything, asks Decide, deletes, creates (in batches
// of 1, 2, 4, ..., stopping after the first with a refusal: a bad template costs one call),
// annotates, and writes the status once, last, and only when it changed; events follow only when
// that write succeeded. Single thread; waits only for the platform's answers. Bounded by the plan.
// Source: reference kubernetes-operators.md 4.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/log.h"
#include "base/metrics.h"
#include "operator/core/decide.h"
#include "operator/core/job_metrics.h"
#include "operator/edge/cluster.h"

namespace crowdsurf::controller {

struct ReconcilerMetrics {
  explicit ReconcilerMetrics(MetricRegistry& registry);
  Counter& success;  // controller_runtime_reconcile_total{result=...}
  Counter& requeue_after;
  Counter& error;
  Counter& errors;           // controller_runtime_reconcile_errors_total
  Counter& terminal_errors;  // of them those that only a change of the job ends
  Counter& created;
  Counter& deleted;
  Counter& annotated;
  Counter& refused;
};

class Reconciler {
 public:
  Reconciler(Cluster& cluster, DecideOptions options, MetricRegistry& registry, Logger log);

  // Returns the plan that was carried out. Errors of creates are in the next plan's conditions;
  // an error of Observe or WriteStatus is returned and the turn is to be tried again.
  StatusOr<Plan> Reconcile(const std::string& job, WallTime now);
  void ForgetMetrics() { job_metrics_.Clear(); }  // of jobs: this process does not lead (any more)

 private:
  // key: what Reconcile was asked for; a name alone may exist in several namespaces.
  // False: the platform refused one, and the rest was not tried.
  Status Failed(const std::string& key, const Status& status);
  bool Create(const std::string& key, const TrainingJob& job, Plan& plan, WallTime now);
  void Tell(const std::string& key, const Plan& plan);

  Cluster& cluster_;
  const DecideOptions options_;
  ReconcilerMetrics metrics_;
  JobMetrics job_metrics_;
  Logger log_;
  std::map<std::string, CreateRefusal> refusals_;        // by key; gone with the first success
  std::map<std::string, std::set<std::string>> untold_;  // by key: uids of the last turn's failures
};

}  // namespace crowdsurf::controller
