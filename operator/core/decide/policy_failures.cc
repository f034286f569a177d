#include <algorithm>

#include "base/digest.h"
#include "operator/core/decide/decision.h"
#include "operator/core/job/failure_text.h"

// Who ended, why, and what it costs: pods are counted once, by name, and names are never re-used.
namespace crowdsurf::controller {
namespace {

constexpr int kBusError = 135;      // 128 + SIGBUS
constexpr size_t kMaxRetries = 16;  // of one index; beyond, the back-off is at its cap anyhow

// The container whose end it was; nullptr: none had one.
const ContainerEnd* EndOf(const PodFacts& pod) {
  for (const auto* end : {&pod.trainer, &pod.init, &pod.agent}) {
    if (*end) return &**end;
  }
  return nullptr;
}

void BackOff(Decision& d, const Worker& worker, FailureAction action) {
  RetryState& retry = d.status.retry[worker.pod->index];
  Rng rng = RngFor(d, worker.pod->name);
  // ReplaceWorker waits as after a first failure, no matter how often this index has failed.
  const int attempt = action == FailureAction::kReplaceWorker ? 0 : retry.failures;
  retry.failures = std::min<int>(retry.failures + 1, kMaxRetries);
  // Whole microseconds: what a status can hold, so that it reads back as it was.
  const int64_t wait = d.options.crash_backoff.Delay(attempt, rng).nanoseconds() / 1000;
  retry.not_before = d.now + Microseconds(wait);
}

std::string HowItEnded(const PodFacts& pod) {
  if (pod.trainer) {
    const int code = pod.trainer->exit_code;
    const std::string text = ", the trainer ended with exit code " + std::to_string(code);
    if (code != kBusError) return text;
    return text +
           " (a bus error: often /dev/shm is full; a pod's holds 64 MiB unless the template "
           "mounts an emptyDir with medium Memory there)";
  }
  if (pod.init) {
    return ", init container " + pod.init_name + " ended with exit code " +
           std::to_string(pod.init->exit_code);
  }
  if (!pod.agent) return "";
  return ", the agent ended with exit code " + std::to_string(pod.agent->exit_code);
}

// `line`: of the last words, the one that says why; empty: none.
std::string Describe(const Worker& worker, const std::string& line) {
  const PodFacts& pod = *worker.pod;
  std::string text = pod.name + ": " + std::string(worker.verdict.reason) + HowItEnded(pod);
  if (!pod.status_reason.empty()) text += ", kubelet says " + pod.status_reason;
  return line.empty() ? text : text + ": " + line;
}

// What says why it ended; kubelet's word of the whole pod first: of a container that it killed the
// log does not know why.
std::string LastOutput(const PodFacts& pod) {
  if (!pod.status_message.empty()) return ShownOutput(pod.status_message, kMaxOutputInStatus);
  const ContainerEnd* end = EndOf(pod);
  return end != nullptr ? ShownOutput(end->output, kMaxOutputInStatus) : pod.waiting_message;
}

// A failure counts towards backoffLimit once a wave: the failure of a pod that was started before
// the last counted failure says nothing new, so eight workers that crash together are one try and
// the job backs off before it gives up. One worker that crashes alone counts every time.
bool NewWave(const Decision& d, const PodFacts& pod) {
  return d.status.counted_failures.empty() || pod.created > d.status.counted_failures.back();
}

void Failed(Decision& d, const Worker& worker) {
  const PodFacts& pod = *worker.pod;
  const ContainerEnd* end = EndOf(pod);
  ++d.status.failures;
  d.status.last_failure = FailureNote{pod.name, std::string(worker.verdict.reason),
                                      end ? end->exit_code : 0, LastOutput(pod), d.now};
  const std::string described =
      Describe(worker, FailureLine(worker.verdict.reason, d.status.last_failure->output));
  // A rule decides only whether the failure counts. The user sees each one, and each one backs off.
  const FailureAction action = ActionFor(d.spec().failure_rules, pod);
  BackOff(d, worker, action);
  d.Say(worker.verdict.reason, described, EventType::kWarning);
  if (action == FailureAction::kFailJob) {
    d.failure = {reason::kFailurePolicy, "a rule of failurePolicy ends the job: " + described};
    return;
  }
  if (action != FailureAction::kCount || !NewWave(d, pod)) return;
  d.status.counted_failures.push_back(d.now);
  const int counted = static_cast<int>(d.status.counted_failures.size());
  if (counted > d.spec().run.backoff_limit) {
    d.failure = {reason::kBackoffLimitExceeded,
                 std::to_string(counted) + " failures, backoffLimit is " +
                     std::to_string(d.spec().run.backoff_limit) + "; last " + described};
  }
}

}  // namespace

Rng RngFor(const Decision& d, const std::string& pod) {
  return Rng(ContentHash(AsBytes(d.in.job.uid), 0)).Fork(pod);
}

void CountEnds(Decision& d) {
  const bool over = d.in.status.finished();
  if (!over) CountVanished(d);
  for (const Worker& worker : d.workers) {
    const PodFacts& pod = *worker.pod;
    if (worker.alive() && pod.ready_since && d.now - *pod.ready_since >= d.options.healthy_after) {
      d.status.retry.erase(pod.index);
    }
    // No watch tells that a time is over, so the job must be looked at again then.
    if (const auto at = JudgedAt(pod); at && d.now < *at) d.WakeAt(*at);
    if (worker.alive() && worker.node != nullptr && worker.node->not_ready_since) {
      d.WakeAt(GivenUpAt(*worker.node, d.in.nodes_heard_since,
                         d.spec().disruption.tolerated_unreachable));
    }
    const Fate fate = worker.verdict.fate;
    if (fate == Fate::kAlive || fate == Fate::kMarked || d.Counted(pod.name)) continue;
    d.Count(pod.name);
    if (over) continue;  // nothing that happens after the end is anybody's fault
    if (fate == Fate::kDisrupted) Disrupted(d, worker);
    if (fate == Fate::kFailed) Failed(d, worker);
    if (fate == Fate::kSucceeded) {
      std::vector<int>& done = d.status.succeeded;
      const auto at = std::lower_bound(done.begin(), done.end(), pod.index);
      if (at == done.end() || *at != pod.index) done.insert(at, pod.index);
    }
  }
}

}  // namespace crowdsurf::controller
