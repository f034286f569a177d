#include <algorithm>

#include "operator/core/decide/decision.h"

// Is the job over, paused, or at work? Deadlines, success, failure, suspend.
namespace crowdsurf::controller {
namespace {

void End(Decision& d, ConditionType type, std::string_view why, std::string message) {
  // The mode changes at once, so that the policies after this one clean up in the same turn.
  d.status.completion_time = d.now;
  d.Say(why, message, type == ConditionType::kFailed ? EventType::kWarning : EventType::kNormal);
  d.plan.events.back().ends_job = true;
  d.Set(type, true, why, std::move(message));
  d.mode = Mode::kFinished;
}

void Succeed(Decision& d, std::string_view why, std::string message) {
  End(d, ConditionType::kSucceeded, why, std::move(message));
}

void Fail(Decision& d, std::string_view why, std::string message) {
  End(d, ConditionType::kFailed, why, std::move(message));
}

// True when this deadline has passed; otherwise sees to it that we look again when it does.
bool Passed(Decision& d, const std::optional<WallTime>& from,
            const std::optional<Duration>& limit) {
  if (!from || !limit) return false;
  if (d.now >= *from + *limit) return true;
  d.WakeAt(*from + *limit);
  return false;
}

bool AnybodyWorks(const Decision& d) {
  return std::any_of(d.workers.begin(), d.workers.end(),
                     [](const Worker& worker) { return !HasEnded(*worker.pod); });
}

void JudgeTarget(Decision& d) {
  if (d.told.target_met && !d.status.target_time) {
    d.status.target_time = d.now;
    d.Say(reason::kTargetMet, "the target is met; workers are finishing");
  }
  if (!d.status.target_time || d.spec().success != SuccessCriterion::kTargetReached) return;
  d.mode = Mode::kFinishing;
  // A worker that hangs after the target must not hold the job for ever.
  const bool late = Passed(d, d.status.target_time, d.options.completion_grace);
  if (late || !AnybodyWorks(d)) Succeed(d, reason::kTargetMet, "the target is met");
}

void JudgeSuccess(Decision& d) {
  // An index that was scaled away is no part of the job any more.
  const std::vector<int>& indices = d.status.succeeded;
  const auto done = static_cast<size_t>(
      std::lower_bound(indices.begin(), indices.end(), d.spec().replicas) - indices.begin());
  if (d.spec().success == SuccessCriterion::kAnySucceeded && !indices.empty()) {
    Succeed(d, reason::kAnySucceeded, "a worker succeeded");
  } else if (d.spec().success == SuccessCriterion::kAllSucceeded && d.spec().replicas > 0 &&
             done >= static_cast<size_t>(d.spec().replicas)) {
    // Zero replicas have done nothing that could succeed.
    Succeed(d, reason::kAllSucceeded, "every worker succeeded");
  }
}

// ": what has kept it from training"; empty: nobody knows.
std::string WhyNot(const Decision& d) {
  const Condition* degraded = d.in.status.Find(ConditionType::kDegraded);
  if (degraded == nullptr || !degraded->on || degraded->message.empty()) return {};
  return ": " + degraded->reason + ", " + degraded->message;
}

void JudgeFailure(Decision& d) {
  const RunPolicy& run = d.spec().run;
  if (d.failure) {
    Fail(d, d.failure->first, d.failure->second);
  } else if (Passed(d, d.status.start_time, run.active_deadline)) {
    Fail(d, reason::kDeadlineExceeded,
         "activeDeadlineSeconds " +
             std::to_string(static_cast<int64_t>(run.active_deadline->seconds())) + " is over");
  } else if (!d.status.running_time && Passed(d, d.status.start_time, run.start_deadline)) {
    Fail(d, reason::kStartDeadlineExceeded,
         "no worker trained within startDeadlineSeconds " +
             std::to_string(static_cast<int64_t>(run.start_deadline->seconds())) + WhyNot(d));
  }
}

void Suspend(Decision& d) {
  const bool was = d.in.status.Is(ConditionType::kSuspended);
  if (d.spec().suspend) {
    d.mode = Mode::kSuspended;
    d.status.start_time.reset();  // deadlines do not run while suspended
    d.status.running_time.reset();
    if (!was) d.Say(reason::kSuspendedByUser, "suspended; its pods go");
    d.Set(ConditionType::kSuspended, true, reason::kSuspendedByUser, "spec.suspend is true");
  } else if (was) {
    d.Say(reason::kResumed, "resumed");
    d.Set(ConditionType::kSuspended, false, reason::kResumed, "");
  }
}

}  // namespace

void JudgeJob(Decision& d) {
  if (d.in.status.finished()) {
    d.mode = Mode::kFinished;
    if (Passed(d, d.status.completion_time, d.spec().run.ttl_after_finished))
      d.plan.delete_job = true;
    return;
  }
  const auto open = [&] { return d.mode != Mode::kFinished; };
  // In this order: a job that met its target cannot fail or be suspended any more.
  JudgeTarget(d);
  if (open()) JudgeSuccess(d);
  if (open() && d.mode != Mode::kFinishing) JudgeFailure(d);
  if (open() && d.mode != Mode::kFinishing) Suspend(d);
}

}  // namespace crowdsurf::controller
