#include "operator/edge/reconciler.h"

#include <algorithm>
#include <span>

namespace crowdsurf::controller {
namespace {

Counter& Reconciles(MetricRegistry& registry, const char* result) {
  return registry.AddCounter("controller_runtime_reconcile_total", "Reconciles, by result.",
                             {{"controller", "trainingjob"}, {"result", result}});
}

Counter& PodCalls(MetricRegistry& registry, const char* call) {
  return registry.AddCounter("crowdsurf_operator_pod_calls_total", "Writes to pods, by verb.",
                             {{"call", call}});
}

std::string_view RefusalReason(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return reason::kQuota;
    case absl::StatusCode::kPermissionDenied:
      return reason::kForbidden;
    case absl::StatusCode::kInvalidArgument:
      return reason::kInvalidTemplate;
    default:
      return reason::kCannotCreate;
  }
}

// Its name is used up; that no pod has it must not look like a pod that vanished.
void NeverMade(const CreatePod& create, Plan& plan) {
  std::vector<std::string>& counted = plan.status.counted;
  const auto at = std::lower_bound(counted.begin(), counted.end(), create.name);
  if (at == counted.end() || *at != create.name) counted.insert(at, create.name);
}

}  // namespace

ReconcilerMetrics::ReconcilerMetrics(MetricRegistry& registry)
    : success(Reconciles(registry, "success")),
      requeue_after(Reconciles(registry, "requeue_after")),
      error(Reconciles(registry, "error")),
      errors(registry.AddCounter("controller_runtime_reconcile_errors_total",
                                 "Reconciles that failed.", {{"controller", "trainingjob"}})),
      terminal_errors(registry.AddCounter("controller_runtime_terminal_reconcile_errors_total",
                                          "Reconciles that fail until the job is changed.",
                                          {{"controller", "trainingjob"}})),
      created(PodCalls(registry, "create")),
      deleted(PodCalls(registry, "delete")),
      annotated(PodCalls(registry, "patch")),
      refused(registry.AddCounter("crowdsurf_operator_creates_refused_total",
                                  "Creates of pods that the platform refused.")) {}

Reconciler::Reconciler(Cluster& cluster, DecideOptions options, MetricRegistry& registry,
                       Logger log)
    : cluster_(cluster), options_(options), metrics_(registry), job_metrics_(registry), log_(log) {}

// A job that is gone or somebody else's is no error; what it was shown as goes.
Status Reconciler::Failed(const std::string& key, const Status& status) {
  const bool gone = absl::IsNotFound(status);
  if (gone || absl::IsFailedPrecondition(status)) {
    job_metrics_.Forget(key);
    metrics_.success.Add();
    if (gone) refusals_.erase(key);
    if (gone) untold_.erase(key);
    return status;
  }
  metrics_.error.Add();
  metrics_.errors.Add();
  if (absl::IsInvalidArgument(status)) metrics_.terminal_errors.Add();
  return status;
}

bool Reconciler::Create(const std::string& key, const TrainingJob& job, Plan& plan, WallTime now) {
  // Slow start: a template that the platform refuses costs one call, a thousand good pods ten
  // steps.
  size_t batch = 1;
  for (size_t done = 0; done < plan.creates.size(); done += batch, batch *= 2) {
    batch = std::min(batch, plan.creates.size() - done);
    const std::span creates = std::span(plan.creates).subspan(done, batch);
    const std::vector<Status> answers = cluster_.CreateAll(job, creates);
    metrics_.created.Add(static_cast<double>(batch));
    const Status* refused = nullptr;
    for (size_t i = 0; i < batch; ++i) {
      if (answers[i].ok()) {
        refusals_.erase(key);
        log_.Info("pod created", {{"pod", creates[i].name}, {"reason", creates[i].reason}});
        continue;
      }
      NeverMade(creates[i], plan);
      metrics_.refused.Add();
      log_.Warning("create refused", {{"pod", creates[i].name}, {"why", answers[i].ToString()}});
      if (refused == nullptr) refused = &answers[i];
    }
    if (refused == nullptr) continue;
    CreateRefusal& refusal = refusals_[key];
    refusal.attempts = refusal.reason.empty() ? 1 : refusal.attempts + 1;
    refusal.reason = RefusalReason(*refused);
    refusal.message = std::string(refused->message());
    refusal.at = now;
    for (const CreatePod& rest : std::span(plan.creates).subspan(done + batch))
      NeverMade(rest, plan);
    return false;  // the rest would be refused likewise
  }
  return true;
}

void Reconciler::Tell(const std::string& key, const Plan& plan) {
  metrics_.annotated.Add(static_cast<double>(plan.annotations.size()));
  untold_.erase(key);
  const std::vector<Status> told = cluster_.AnnotateAll(plan.annotations);
  for (size_t i = 0; i < told.size(); ++i) {
    if (told[i].ok()) continue;
    untold_[key].insert(plan.annotations[i].uid);
    log_.Warning("patch failed", {{"pod", plan.annotations[i].name}, {"why", told[i].ToString()}});
  }
}

StatusOr<Plan> Reconciler::Reconcile(const std::string& job, WallTime now) {
  StatusOr<JobSnapshot> snapshot = cluster_.Observe(job);
  if (!snapshot.ok()) return Failed(job, snapshot.status());
  const auto refusal = refusals_.find(job);
  if (refusal != refusals_.end()) snapshot->refusal = refusal->second;
  if (const auto untold = untold_.find(job); untold != untold_.end()) {
    snapshot->untold = untold->second;
  }
  Plan plan = Decide(*snapshot, now, options_);
  for (const DeletePod& pod : plan.deletes) {
    metrics_.deleted.Add();
    const Status status = cluster_.Delete(pod);
    log_.Info("pod deleted", {{"pod", pod.name}, {"reason", pod.reason}});
    if (!status.ok())
      log_.Warning("delete failed", {{"pod", pod.name}, {"why", status.ToString()}});
  }
  // Before any create: who is told that its machine goes has seconds, a replacement has not begun.
  Tell(job, plan);
  // The next decision says why in the conditions, and when to try again.
  if (!Create(job, snapshot->job, plan, now)) plan.requeue_at = now;
  if (plan.status_changed) {
    const Status status = cluster_.WriteStatus(snapshot->job, plan.status);
    if (!status.ok()) return Failed(job, status);
  }
  for (const Event& event : plan.events) cluster_.Record(snapshot->job, event);
  (plan.requeue_at.infinite() ? metrics_.success : metrics_.requeue_after).Add();
  job_metrics_.Show(job, *snapshot, plan, now);
  return plan;
}

}  // namespace crowdsurf::controller
