// Reconciler: observe, decide, carry out; the same class for Kubernetes and for local mode.
//
// One call is one turn for one job: it reads everything, asks Decide, annotates, creates (in
// batches of 1, 2, 4, ..., stopping after the first with a refusal: a bad template costs one call),
// writes the status, only when it changed, and then deletes: what a pod's end was is kept before
// the pod goes. Deletes and events are left out when that write failed. A turn's requests are begun
// within a slice of time; what is left is for the next turn, after the other jobs'. Single thread;
// waits only for the platform's answers; no exception leaves it. Source:
// docs/kubernetes.md.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/edge/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "operator/core/decide/decide.h"
#include "operator/core/decide/job_metrics.h"
#include "operator/edge/reconcile/cluster.h"

namespace crowdsurf::controller {

struct ReconcilerMetrics {
  explicit ReconcilerMetrics(MetricRegistry& registry);
  Counter& success;  // controller_runtime_reconcile_total{result=...}
  Counter& requeue_after;
  Counter& error;
  Counter& errors;           // controller_runtime_reconcile_errors_total
  Counter& terminal_errors;  // of them those that only a change of the job ends
  Counter& panics;           // of them exceptions
  Counter& created;
  Counter& deleted;
  Counter& annotated;
  Counter& refused;
};

class Reconciler {
 public:
  // clock: any thread's.
  Reconciler(Cluster& cluster, DecideOptions options, MetricRegistry& registry, Logger log,
             std::function<Time()> clock = SteadyNow);

  // Returns the plan that was carried out. Errors of creates are in the next plan's conditions;
  // an error of Observe or WriteStatus is returned and the turn is to be tried again; so is an
  // exception, as Internal, and the job's condition says it.
  StatusOr<Plan> Reconcile(const std::string& job, WallTime now);
  void ForgetMetrics() { job_metrics_.Clear(); }  // of jobs: this process does not lead (any more)

 private:
  // key: what Reconcile was asked for; a name alone may exist in several namespaces.
  StatusOr<Plan> Turn(const std::string& key, WallTime now);
  Status Failed(const std::string& key, const Status& status);
  Status Threw(const std::string& key, const std::string& what);
  void Create(const std::string& key, const TrainingJob& job, Plan& plan, WallTime now);
  const Status* Made(const std::string& key, std::span<const CreatePod> creates,
                     std::span<const Status> answers, Plan& plan);
  void Tell(const std::string& key, Plan& plan, WallTime now);
  void Delete(Plan& plan, WallTime now);
  Enough Slice() const;  // true when a slice that begins now is over

  Cluster& cluster_;
  const DecideOptions options_;
  ReconcilerMetrics metrics_;
  JobMetrics job_metrics_;
  Logger log_;
  const std::function<Time()> clock_;
  std::map<std::string, CreateRefusal> refusals_;        // by key; gone with the first success
  std::map<std::string, size_t> batches_;                // by key: of the next creates
  std::map<std::string, std::set<std::string>> untold_;  // by key: uids of the last turn's failures
};

}  // namespace crowdsurf::controller
