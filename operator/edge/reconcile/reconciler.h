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
#include <optional>
#include <set>
#include <string>

#include "base/edge/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "operator/core/decide/decide.h"
#include "operator/core/decide/job_metrics.h"
#include "operator/core/observe/uid_records.h"
#include "operator/edge/reconcile/cluster.h"

namespace crowdsurf::controller {

struct ReconcilerMetrics {
  explicit ReconcilerMetrics(MetricRegistry& r) : registry(r) {}

  MetricRegistry& registry;
  Counter& success = Reconciles("success");
  Counter& requeue_after = Reconciles("requeue_after");
  Counter& error = Reconciles("error");
  Counter& errors = registry.AddCounter("controller_runtime_reconcile_errors_total",
                                        "Reconciles that failed.", {{"controller", "trainingjob"}});
  Counter& terminal_errors = registry.AddCounter(
      "controller_runtime_terminal_reconcile_errors_total",
      "Reconciles that fail until the job is changed.", {{"controller", "trainingjob"}});
  Counter& panics = registry.AddCounter("controller_runtime_reconcile_panics_total",
                                        "Reconciles that ended with an exception.",
                                        {{"controller", "trainingjob"}});
  Counter& created = PodCalls("create");
  Counter& deleted = PodCalls("delete");
  Counter& annotated = PodCalls("patch");
  Counter& refused = registry.AddCounter("crowdsurf_operator_creates_refused_total",
                                         "Creates of pods that the platform refused.");

 private:
  Counter& Reconciles(const char* result) {
    return registry.AddCounter("controller_runtime_reconcile_total", "Reconciles, by result.",
                               {{"controller", "trainingjob"}, {"result", result}});
  }
  Counter& PodCalls(const char* call) {
    return registry.AddCounter("crowdsurf_operator_pod_calls_total", "Writes to pods, by verb.",
                               {{"call", call}});
  }
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
  // Before any turn: who of these jobs' workers has a notice to get is told, all of them at once.
  // Their turns count it, and tell again whom this could not reach. Begins requests for kNotices.
  void TellMarked(const std::set<std::string>& jobs, WallTime now);
  void ForgetMetrics() { job_metrics_.Clear(); }  // of jobs: this process does not lead (any more)

 private:
  struct Tries {                           // of a job: what came of its last turns
    std::optional<CreateRefusal> refusal;  // gone with the first success
    size_t batch = 1;                      // of the next creates
    std::set<std::string> untold;          // uids of the last turn's failures
  };
  // key: what Reconcile was asked for; a name alone may exist in several namespaces.
  StatusOr<Plan> Turn(const std::string& key, WallTime now);
  Status Failed(const std::string& key, const Status& status);
  Status Threw(const std::string& key, const std::string& what);
  void Create(const TrainingJob& job, Tries& tries, Plan& plan, WallTime now);
  const Status* Made(Tries& tries, std::span<const CreatePod> creates,
                     std::span<const Status> answers, Plan& plan);
  void Tell(Tries& tries, Plan& plan, WallTime now);
  void Delete(Plan& plan, WallTime now);
  void AddNotices(const std::string& key, WallTime now, std::vector<AnnotatePod>& notices);
  Enough Slice(Duration length) const;  // true when a slice that begins now is over

  Cluster& cluster_;
  const DecideOptions options_;
  ReconcilerMetrics metrics_;
  JobMetrics job_metrics_;
  Logger log_;
  const std::function<Time()> clock_;
  UidRecords<Tries> tries_;
};

}  // namespace crowdsurf::controller
