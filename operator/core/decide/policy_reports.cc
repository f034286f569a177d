#include <algorithm>

#include "operator/core/decide/decision.h"

// How far the peers' word goes: who is reported dead is lost, in portions, and nobody when most
// are: a partition looks the same from here (docs/pod-lifecycle.md 3).
namespace crowdsurf::controller {
namespace {

constexpr double kShare = 0.1;  // of a job, deleted a minute where the API shows no evidence
constexpr Duration kWindow = Seconds(60);

size_t DeletedLately(Decision& d) {
  size_t lately = 0;
  for (const WallTime at : d.in.deleted_on_word) {
    if (d.now - at >= kWindow) continue;
    ++lately;
    // The next portion is due then, and no watch tells of it.
    d.WakeAt(at + kWindow);
  }
  return lately;
}

}  // namespace

bool OnPeersWord(const Worker& worker) {
  return worker.verdict.fate == Fate::kDisrupted &&
         worker.verdict.reason == reason::kPeersReportedDead;
}

// Whoever may not go yet counts as alive: it is neither deleted nor replaced nor counted.
void JudgeReports(Decision& d) {
  size_t reported = 0, present = 0;
  for (const Worker& worker : d.workers) {
    present += !worker.going;
    reported += !worker.going && OnPeersWord(worker);
  }
  // One report alone is a loss and no partition, also in a job of one or two.
  const bool split = reported * 2 > present && reported > 1;
  if (split) {
    d.Set(ConditionType::kPartitioned, true, reason::kMaxPeersReportedDead,
          std::to_string(reported) + " of " + std::to_string(present) +
              " workers are reported dead; nothing is deleted");
  } else if (d.in.status.Is(ConditionType::kPartitioned)) {
    d.Set(ConditionType::kPartitioned, false, reason::kWorkersTraining, "");
  }
  if (reported == 0) return;
  const size_t most =
      std::max<size_t>(1, static_cast<size_t>(static_cast<double>(present) * kShare));
  size_t lately = DeletedLately(d);
  for (Worker& worker : d.workers) {
    if (worker.going || !OnPeersWord(worker)) continue;
    // A delete that failed is tried again: its replacement is there already.
    const bool judged = d.Counted(worker.pod->name);
    if (!split && (judged || worker.pod->lease_stale || lately < most)) {
      lately += !judged && !worker.pod->lease_stale;
      continue;
    }
    worker.verdict = {};
    d.WakeAt(d.now + kWindow);
  }
}

}  // namespace crowdsurf::controller
