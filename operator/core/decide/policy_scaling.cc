#include <algorithm>

#include "base/digest.h"
#include "base/rng.h"
#include "operator/core/decide/decision.h"

// How many workers, on what capacity, under which names.
namespace crowdsurf::controller {
namespace {

constexpr Duration kObstacleAgain = Seconds(5);  // between looks at whether it has gone
constexpr Duration kRoomAgain = Seconds(2);      // between looks at whether a quota has room again

bool IsSpot(const Worker& worker) { return worker.pod->capacity == CapacityType::kSpot; }

bool LacksSpot(const Worker& worker) {
  return worker.alive() && IsSpot(worker) && worker.pod->phase == PodPhase::kPending &&
         worker.pod->waiting_reason == reason::kNoSpotCapacity;
}

// Of the workers that may be made, how many the spec wants on demand: a base, and a share of the
// rest, rounded up.
int WantedOnDemand(const Decision& d) {
  const CapacitySpec& capacity = d.spec().capacity;
  if (capacity.type == CapacityType::kOnDemand) return d.wanted();
  const int base = std::min(capacity.on_demand_base, d.wanted());
  const int rest = d.wanted() - base;
  return base + (rest * capacity.on_demand_percentage_above_base + 99) / 100;
}

int CountOnDemand(const Decision& d) {
  return static_cast<int>(
      std::count_if(d.workers.begin(), d.workers.end(), [](const Worker& worker) {
        return worker.alive() && worker.pod->capacity == CapacityType::kOnDemand;
      }));
}

// Spot has had no room for too long: workers that wait for it may be placed on demand.
int FallbackAllowed(Decision& d) {
  const bool short_now = std::any_of(d.workers.begin(), d.workers.end(), LacksSpot);
  if (!short_now) {
    d.status.spot_short_since.reset();
    return 0;
  }
  if (!d.status.spot_short_since) d.status.spot_short_since = d.now;
  const CapacitySpec& capacity = d.spec().capacity;
  if (capacity.fallback_max_on_demand == 0) return 0;
  const WallTime due = *d.status.spot_short_since + capacity.fallback_after;
  if (d.now < due) {
    d.WakeAt(due);
    return 0;
  }
  // Workers on demand beyond the wanted share are earlier fallbacks, and count against the maximum.
  const int used = std::max(0, CountOnDemand(d) - WantedOnDemand(d));
  return std::max(0, capacity.fallback_max_on_demand - used);
}

std::vector<std::string> Avoided(const Decision& d) {
  std::vector<std::string> nodes;
  for (const AvoidedNode& one : d.status.avoided) nodes.push_back(one.node);
  return nodes;
}

struct Creator {
  Decision& d;
  int on_demand_missing;
  const std::string config;
  const std::string seeds;

  int NextIncarnation(int index) {
    const int floor = d.status.incarnation_floor;
    int& highest = d.status.incarnations[index];
    if (highest == 0 && floor > 0) {
      // It was scaled away once. That name is not missed if the create fails (reconciler.cc).
      highest = floor;
      d.Count(PodName(d.in.job.name, index, floor));
    }
    return ++highest;
  }

  void Create(int index, std::optional<CapacityType> forced, std::string_view why) {
    CapacityType capacity = d.spec().capacity.type;
    if (forced) {
      capacity = *forced;
    } else if (on_demand_missing > 0) {
      capacity = CapacityType::kOnDemand;
      --on_demand_missing;
    }
    const int incarnation = NextIncarnation(index);
    d.plan.creates.push_back({PodName(d.in.job.name, index, incarnation), index, incarnation,
                              capacity, seeds, config, why, d.in.suspect_nodes,
                              d.status.agent_image, Avoided(d)});
  }
};

std::string Joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// Something stands in the way of every worker: no name is used up meanwhile.
bool Blocked(Decision& d) {
  if (!d.in.obstacle) return false;
  d.WakeAt(d.now + kObstacleAgain);
  return true;
}

// Not before the API server's last refusal has been slept over.
bool Refused(Decision& d) {
  if (!d.in.refusal) return false;
  // Another seed than that of failures (policy_failures.cc), so that the two do not wait in step.
  Rng rng = Rng(ContentHash(AsBytes(d.in.job.uid), 1));
  const WallTime due = d.in.refusal->at + d.options.refusal_backoff.Delay(
                                              std::max(0, d.in.refusal->attempts - 1), rng);
  if (d.now >= due) return false;
  if (d.in.refusal->reason == reason::kQuota) {
    if (d.in.pod_gone_at && *d.in.pod_gone_at > d.in.refusal->at) return false;
    // Another job's pod may go, of which this job is not told.
    d.WakeAt(std::min(due, d.now + kRoomAgain));
  }
  d.WakeAt(due);
  return true;
}

// Indices whose worker has just been told to leave: its kubelet looks first.
std::set<int> JustTold(Decision& d) {
  std::set<int> indices;
  if (d.options.notice_first == Duration()) return indices;
  std::set<std::string> told_now;
  for (const AnnotatePod& note : d.plan.annotations) {
    if (note.key == kNoticeAnnotation && !note.value.empty()) told_now.insert(note.uid);
  }
  for (const Worker& worker : d.workers) {
    const PodFacts& pod = *worker.pod;
    if (worker.verdict.fate != Fate::kMarked || d.in.untold.contains(pod.uid)) continue;
    std::optional<WallTime> told = d.now;
    if (!told_now.contains(pod.uid)) told = NotifiedAtOf(pod);
    if (!told || d.now >= *told + d.options.notice_first) continue;
    d.WakeAt(*told + d.options.notice_first);
    indices.insert(pod.index);
  }
  return indices;
}

std::set<int> LiveIndices(const Decision& d) {
  std::set<int> live = d.unheard;
  for (const Worker& worker : d.workers) {
    if (worker.alive() || worker.speaking) live.insert(worker.pod->index);
  }
  return live;
}

}  // namespace

void ScaleDown(Decision& d) {
  if (d.mode != Mode::kWorking) return;
  int seen = -1;
  for (Worker& worker : d.workers) {  // by index, oldest incarnation first
    if (!worker.alive()) continue;
    if (worker.pod->index >= d.spec().replicas) {
      d.Delete(worker, reason::kScaleDown);
    } else if (worker.pod->index == seen) {
      d.Delete(worker, reason::kSurplus);  // the elder was not lost after all: the newest goes
    } else {
      seen = worker.pod->index;
    }
  }
}

void CreateMissing(Decision& d) {
  if (d.mode != Mode::kWorking || Blocked(d) || Refused(d)) return;
  // Before the loop over missing workers, which would find nothing missing: these workers do exist.
  int fallback = FallbackAllowed(d);
  Creator creator{d, WantedOnDemand(d) - CountOnDemand(d), ConfigFor(d.in.job),
                  Joined(SeedsFor(d, ""))};
  for (Worker& worker : d.workers) {
    if (fallback == 0 || d.plan.creates.size() >= d.options.max_creates) break;
    if (!LacksSpot(worker)) continue;
    const int index = worker.pod->index;
    d.Delete(worker, reason::kNoSpotCapacity);
    creator.Create(index, CapacityType::kOnDemand, reason::kNoSpotCapacity);
    --fallback;
  }
  std::set<int> taken = LiveIndices(d);
  for (const CreatePod& create : d.plan.creates) taken.insert(create.index);
  if (d.spec().success != SuccessCriterion::kTargetReached) {
    // Under these criteria a worker that ended well is done, and its index is not missing.
    taken.insert(d.status.succeeded.begin(), d.status.succeeded.end());
  }
  taken.merge(JustTold(d));
  for (int index = 0; index < d.wanted(); ++index) {
    if (taken.count(index)) continue;
    if (d.plan.creates.size() >= d.options.max_creates) {
      d.WakeAt(d.now);  // the rest in the next turn, after the other jobs' turns
      return;
    }
    const auto retry = d.status.retry.find(index);
    if (retry != d.status.retry.end() && d.now < retry->second.not_before) {
      // Only this index waits for its back-off.
      d.WakeAt(retry->second.not_before);
      continue;
    }
    const bool first = d.status.incarnations[index] == 0;
    const bool failed = retry != d.status.retry.end() && retry->second.failures > 0;
    creator.Create(index, std::nullopt,
                   first    ? reason::kFirstWorker
                   : failed ? reason::kRetry
                            : reason::kReplacement);
  }
}

}  // namespace crowdsurf::controller
