#include <algorithm>
#include <nlohmann/json.hpp>

#include "operator/core/decide/decision.h"
#include "operator/core/job/json_path.h"

// Notices to workers whose node is going, and who is deleted when. Telling is an annotation patch;
// deleting is never a way of telling (docs/pod-lifecycle.md 1).
namespace crowdsurf::controller {
namespace {

// In a short job, word of a worker's first step may come so much later than another's word of the
// target. Whoever is refused because the job is over forms no view in the next five seconds.
constexpr Duration kSeenLate = Seconds(3);

std::string NoticeText(const Mark& mark) {
  nlohmann::json notice = {{"reason", mark.signal}};
  if (mark.deadline) notice["deadline"] = mark.deadline->seconds();
  return JsonText(notice);
}

void RemoveMarked(Decision& d, Worker& worker) {
  const std::optional<Mark>& mark = worker.node->mark;
  if (!mark || !mark->deadline) return;  // the cloud will drain it
  const std::optional<WallTime>& deadline = mark->deadline;
  const WallTime due = *deadline - d.options.notice_margin;
  if (d.now < due) {
    d.WakeAt(due);
    return;
  }
  // Until its node goes; the node takes what is left.
  const Duration left = *deadline > d.now ? *deadline - d.now : Duration();
  d.Delete(worker, reason::kNoticeExpires, std::min(left, d.spec().disruption.grace));
}

// When a node counts as gone, with its kubelet; infinite: it is there, as far as anybody knows.
WallTime GoneAt(const Decision& d, const Worker& worker) {
  if (worker.pod->node.empty()) return WallTime::Infinite();  // no kubelet holds it
  if (worker.node == nullptr) return d.now;
  if (!worker.node->not_ready_since) return WallTime::Infinite();
  return GivenUpAt(*worker.node, d.in.nodes_heard_since, d.spec().disruption.tolerated_unreachable);
}

// Where the kubelet is gone, the API server would keep the pod for ever. A kubelet that is there
// ends it: a slow unmount or a core dump takes its time, and the machine is not free before.
void RemoveStuck(Decision& d, const Worker& worker) {
  // A grace of zero is a force. What still holds the pod then is a finalizer of somebody's.
  if (!worker.pod->deleted || worker.pod->grace == Duration()) return;
  const WallTime due =
      std::max(*worker.pod->deleted + worker.pod->grace + d.spec().disruption.force_delete_after,
               GoneAt(d, worker));
  if (d.now < due) {
    d.WakeAt(due);
    return;
  }
  d.plan.deletes.push_back({worker.pod->name, worker.pod->uid, Duration(), reason::kStuck});
  d.Say(reason::kStuck, worker.pod->name + " did not go; it is deleted by force",
        EventType::kWarning);
}

// It has not trained when the target was met. One that trains since has no seat in a job that is
// over: it trains alone, and would not end by itself.
bool HasNothingToHandIn(const Decision& d, const PodFacts& pod) {
  if (!pod.ever_ready) return true;
  return d.status.target_time && pod.ready_since &&
         *pod.ready_since > *d.status.target_time + kSeenLate;
}

void RemoveWorking(Decision& d, Worker& worker) {
  switch (worker.verdict.fate) {
    case Fate::kAlive:
      if (d.mode == Mode::kFinishing && HasNothingToHandIn(d, *worker.pod)) {
        d.Delete(worker, reason::kJobFinished);
      } else if (MustSpeak(*worker.pod, d.now)) {
        // Not counted: its end is judged by what it says.
        d.plan.deletes.push_back(
            {worker.pod->name, worker.pod->uid, std::nullopt, reason::kLastWords});
        worker.going = worker.speaking = true;
      }
      return;
    case Fate::kMarked:
      RemoveMarked(d, worker);
      return;
    case Fate::kSucceeded:
      // The agent may still be writing the model; JudgeTarget bounds how long that may take.
      if (d.mode == Mode::kFinishing && !HasEnded(*worker.pod)) return;
      d.Delete(worker, reason::kEnded);
      return;
    // CountEnds has counted these ends, so nothing is lost with the pods.
    case Fate::kDisrupted:
    case Fate::kFailed:
      d.Delete(worker, OnPeersWord(worker) ? reason::kPeersReportedDead : reason::kEnded);
      return;
  }
}

bool MustGo(const Decision& d, const Worker& worker) {
  if (d.mode == Mode::kSuspended) return true;
  if (d.mode != Mode::kFinished) return false;
  // Pods that cleanPodPolicy kept go with their job at the latest.
  if (d.plan.delete_job) return true;
  if (d.spec().run.clean_pods == CleanPodPolicy::kAll) return true;
  return d.spec().run.clean_pods == CleanPodPolicy::kRunning && !HasEnded(*worker.pod);
}

}  // namespace

void SendNotices(Decision& d) {
  for (const Worker& worker : d.workers) {
    // A pod that is being deleted gets SIGTERM, which says more than a notice.
    if (worker.going || d.mode == Mode::kFinished) continue;
    const PodFacts& pod = *worker.pod;
    const std::string& told = pod.Annotation(kNoticeAnnotation);
    if (worker.verdict.fate == Fate::kMarked) {
      if (!worker.node->mark) continue;  // the notice that it has stands
      const std::string text = NoticeText(*worker.node->mark);
      if (told != text) {
        d.plan.annotations.push_back({pod.name, pod.uid, kNoticeAnnotation, text, reason::kNotice});
      }
      // Once a notice, also where its deadline moves, and where the status that counted it was
      // never written.
      if (d.Counted(NoticeName(pod.name))) continue;
      d.Count(NoticeName(pod.name));
      ++d.status.disruptions;
      ++d.status.disruptions_by_reason[std::string(reason::kNodeMarked)];
      d.status.last_disruption = d.now;
      d.Say(reason::kNotice,
            pod.name + " is told that its node goes: " + worker.node->mark->signal);
    } else if (worker.verdict.fate == Fate::kAlive && !told.empty()) {
      d.plan.annotations.push_back(
          {pod.name, pod.uid, kNoticeAnnotation, "", reason::kNoticeWithdrawn});
      d.Say(reason::kNoticeWithdrawn, pod.name + " may stay: the mark on its node is gone");
      std::erase(d.status.counted, NoticeName(pod.name));  // the next one counts
    }
  }
}

void RemovePods(Decision& d) {
  for (Worker& worker : d.workers) {
    if (worker.going) {
      RemoveStuck(d, worker);
    } else if (MustGo(d, worker)) {
      d.Delete(worker,
               d.mode == Mode::kSuspended ? reason::kSuspendedByUser : reason::kJobFinished);
    } else if (d.mode == Mode::kWorking || d.mode == Mode::kFinishing) {
      RemoveWorking(d, worker);
    }
  }
}

}  // namespace crowdsurf::controller
