#include "operator/edge/reconcile/reconciler.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/text.h"

namespace crowdsurf::controller {
namespace {

// In which a turn's creates, its deletes and its patches are each begun: other jobs wait for it.
constexpr Duration kSlice = Milliseconds(300);
// The notices of all jobs: some thousands, where a server answers in 10 ms. Where it takes seconds,
// a loop that began more of them would be taken for stuck after 20 s (pulse.h).
constexpr Duration kNotices = Seconds(5);
constexpr Duration kDeleteAgain = Seconds(1);
constexpr size_t kLargestBatch = 512;  // what is at once is the platform's; more is not planned
constexpr size_t kMaxMessage = 1024;   // of a condition

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

// Its name is used up; that no pod of ours has it must not look like a pod that vanished.
void StepOver(const CreatePod& create, Plan& plan) {
  std::vector<std::string>& counted = plan.status.counted;
  const auto at = std::lower_bound(counted.begin(), counted.end(), create.name);
  if (at == counted.end() || *at != create.name) counted.insert(at, create.name);
}

// It was not made, or nobody knows: the next turn asks for the same name, and finds what there is.
void TakeBack(const CreatePod& create, Plan& plan) {
  if (create.incarnation > 1) {
    plan.status.incarnations[create.index] = create.incarnation - 1;
  } else {
    plan.status.incarnations.erase(create.index);
  }
}

}  // namespace

Reconciler::Reconciler(Cluster& cluster, DecideOptions options, MetricRegistry& registry,
                       Logger log, std::function<Time()> clock)
    : cluster_(cluster),
      options_(std::move(options)),
      metrics_(registry),
      job_metrics_(registry),
      log_(log),
      clock_(std::move(clock)) {}

Enough Reconciler::Slice(Duration length) const {
  return [clock = clock_, until = clock_() + length] { return clock() >= until; };
}

// A job that is gone or somebody else's is no error; what it was shown as goes.
Status Reconciler::Failed(const std::string& key, const Status& status) {
  const bool gone = absl::IsNotFound(status);
  if (gone || absl::IsFailedPrecondition(status)) {
    job_metrics_.Forget(key);
    metrics_.success.Add();
    // A job that others manage may come back, so only one that is gone is forgotten.
    if (gone) tries_.Forget(key);
    return status;
  }
  metrics_.error.Add();
  metrics_.errors.Add();
  if (absl::IsInvalidArgument(status)) metrics_.terminal_errors.Add();
  return status;
}

// Others' jobs go on; this one's owner sees why it does not.
Status Reconciler::Threw(const std::string& key, const std::string& what) {
  metrics_.panics.Add();
  metrics_.error.Add();
  metrics_.errors.Add();
  const std::string text = CutText(what, kMaxMessage);
  log_.Error("a turn ended with an exception", {{"job", key}, {"why", text}});
  Status shown;
  try {
    // This may throw as well: it reads the job that the turn has stumbled over.
    shown = cluster_.ShowError(key, text);
  } catch (const std::exception& error) {
    shown = absl::InternalError(error.what());
  }
  if (!shown.ok()) log_.Warning("error not shown", {{"job", key}, {"why", shown.ToString()}});
  return absl::InternalError(text);
}

// What the answers mean; the first refusal, nullptr when there is none.
const Status* Reconciler::Made(Tries& tries, std::span<const CreatePod> creates,
                               std::span<const Status> answers, Plan& plan) {
  const Status* refused = nullptr;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].ok()) {
      tries.refusal.reset();
      log_.Info("pod created", {{"pod", creates[i].name}, {"reason", creates[i].reason}});
      continue;
    }
    // A conflict is over something else, such as a quota.
    absl::IsAlreadyExists(answers[i]) ? StepOver(creates[i], plan) : TakeBack(creates[i], plan);
    metrics_.refused.Add();
    log_.Warning("create refused", {{"pod", creates[i].name}, {"why", answers[i].ToString()}});
    if (refused == nullptr) refused = &answers[i];
  }
  return refused;
}

// Slow start: a template that the platform refuses costs one call, a thousand good pods ten steps.
// The next turn goes on with the last one's batch.
void Reconciler::Create(const TrainingJob& job, Tries& tries, Plan& plan, WallTime now) {
  const Enough enough = Slice(kSlice);
  size_t& step = tries.batch;
  std::span<const CreatePod> left = plan.creates;
  while (!left.empty()) {
    const auto batch = left.first(std::min(step, left.size()));
    const std::vector<Status> answers = cluster_.CreateAll(job, batch, enough);
    metrics_.created.Add(static_cast<double>(answers.size()));
    const Status* refused = Made(tries, batch, answers, plan);
    left = left.subspan(answers.size());
    if (refused != nullptr) {  // the rest would be refused likewise
      const int before = tries.refusal ? tries.refusal->attempts : 0;
      tries.refusal = {std::string(RefusalReason(*refused)),
                       CutText(std::string(refused->message()), kMaxMessage), now, before + 1};
      // The next turn tries one again before it tries many.
      step = 1;
      plan.requeue_at = now;  // the next decision says why, and when to try again
      break;
    }
    step = std::min(step * 2, kLargestBatch);
    if (!left.empty() && enough()) {
      plan.requeue_at = now;
      break;
    }
  }
  for (const CreatePod& create : left) TakeBack(create, plan);
}

// Before any create: who is told that its machine goes has seconds, a replacement has not begun.
// So every notice goes out, and the rest as there is time.
void Reconciler::Tell(Tries& tries, Plan& plan, WallTime now) {
  std::vector<AnnotatePod>& notes = plan.annotations;
  const auto rest = std::stable_partition(notes.begin(), notes.end(), [](const AnnotatePod& note) {
    return note.key == kNoticeAnnotation;
  });
  tries.untold.clear();
  const auto tell = [&](std::span<const AnnotatePod> some, const Enough& enough) {
    if (some.empty()) return;
    const std::vector<Status> told = cluster_.AnnotateAll(some, enough);
    metrics_.annotated.Add(static_cast<double>(told.size()));
    for (size_t i = 0; i < told.size(); ++i) {
      if (told[i].ok()) continue;
      tries.untold.insert(some[i].uid);
      log_.Warning("patch failed", {{"pod", some[i].name}, {"why", told[i].ToString()}});
    }
    if (told.size() < some.size()) plan.requeue_at = now;
  };
  tell({notes.begin(), rest}, {});
  tell({rest, notes.end()}, Slice(kSlice));
}

void Reconciler::AddNotices(const std::string& key, WallTime now,
                            std::vector<AnnotatePod>& notices) {
  try {
    const StatusOr<JobSnapshot> snapshot = cluster_.Glance(key);
    if (!snapshot.ok()) return;
    for (AnnotatePod& note : Decide(*snapshot, now, options_).annotations) {
      if (note.key == kNoticeAnnotation) notices.push_back(std::move(note));
    }
  } catch (const std::exception&) {
    // Its turn meets the same, and says it.
  }
}

void Reconciler::TellMarked(const std::set<std::string>& jobs, WallTime now) {
  std::vector<AnnotatePod> notices;
  for (const std::string& key : jobs) AddNotices(key, now, notices);
  if (notices.empty()) return;
  const std::vector<Status> told = cluster_.AnnotateAll(notices, Slice(kNotices));
  metrics_.annotated.Add(static_cast<double>(told.size()));
  for (size_t i = 0; i < told.size(); ++i) {
    if (told[i].ok()) continue;
    log_.Warning("notice not given", {{"pod", notices[i].name}, {"why", told[i].ToString()}});
  }
}

// The status that says what their ends were is written.
void Reconciler::Delete(Plan& plan, WallTime now) {
  if (plan.deletes.empty()) return;
  const std::vector<Status> gone = cluster_.DeleteAll(plan.deletes, Slice(kSlice));
  metrics_.deleted.Add(static_cast<double>(gone.size()));
  for (size_t i = 0; i < gone.size(); ++i) {
    const DeletePod& pod = plan.deletes[i];
    log_.Info("pod deleted", {{"pod", pod.name}, {"reason", pod.reason}});
    if (gone[i].ok()) continue;
    log_.Warning("delete failed", {{"pod", pod.name}, {"why", gone[i].ToString()}});
    plan.requeue_at = std::min(plan.requeue_at, now + kDeleteAgain);
  }
  if (gone.size() < plan.deletes.size()) plan.requeue_at = now;
}

StatusOr<Plan> Reconciler::Reconcile(const std::string& job, WallTime now) {
  try {
    return Turn(job, now);
  } catch (const std::exception& error) {
    return Threw(job, error.what());
  } catch (...) {
    return Threw(job, "an exception of an unknown type");
  }
}

StatusOr<Plan> Reconciler::Turn(const std::string& key, WallTime now) {
  StatusOr<JobSnapshot> snapshot = cluster_.Observe(key);
  if (!snapshot.ok()) return Failed(key, snapshot.status());
  Tries& tries = tries_.Of(key, snapshot->job.uid);
  snapshot->refusal = tries.refusal;
  snapshot->untold = tries.untold;
  Plan plan = Decide(*snapshot, now, options_);
  if (!plan.ask_pods.empty()) cluster_.AskPods(snapshot->job, plan.ask_pods);
  Tell(tries, plan, now);
  Create(snapshot->job, tries, plan, now);
  // Before the deletes: an end that is not written yet must keep its pod.
  if (plan.status_changed) {
    const Status status = cluster_.WriteStatus(snapshot->job, plan.status);
    if (!status.ok()) return Failed(key, status);
  }
  Delete(plan, now);
  if (!plan.events.empty()) cluster_.RecordAll(snapshot->job, plan.events);
  (plan.requeue_at.infinite() ? metrics_.success : metrics_.requeue_after).Add();
  job_metrics_.Show(key, *snapshot, plan, now);
  return plan;
}

}  // namespace crowdsurf::controller
