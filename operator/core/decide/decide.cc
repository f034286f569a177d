#include "operator/core/decide/decide.h"

#include <algorithm>

#include "operator/core/decide/decision.h"
#include "operator/core/job/json_path.h"

namespace crowdsurf::controller {
namespace {

// What a status can hold: a plan decided from a status that was read back must be the same plan.
WallTime WholeMicroseconds(WallTime time) {
  return WallTime::FromNanoseconds(time.nanoseconds() / 1000 * 1000);
}

using Policy = void (*)(Decision&);

// The order is the specification: nothing is created before everything that ended is counted, and
// conditions describe what the policies before them concluded.
constexpr Policy kChain[] = {Begin,        JudgeReports,   CountEnds, JudgeJob,
                             SendNotices,  RemovePods,     ScaleDown, CreateMissing,
                             InformAgents, WriteConditions};

// What the agents said when asked, and what those that have ended left behind.
Progress Told(const JobSnapshot& snapshot) {
  Progress told = snapshot.progress;
  for (const PodFacts& pod : snapshot.pods) {
    if (pod.last_words) AddWords(told, *pod.last_words);
  }
  return told;
}

}  // namespace

void AddWords(Progress& told, const Progress& words) {
  // The loss goes with the most samples: a worker that left early saw an older model.
  if (words.samples > told.samples && words.loss) told.loss = words.loss;
  told.samples = std::max(told.samples, words.samples);
  told.step = std::max(told.step, words.step);
  told.averaging = std::max(told.averaging, words.averaging);
  told.target_met = told.target_met || words.target_met;
}

const std::string& PodFacts::Annotation(std::string_view key) const {
  static const std::string kNone;
  const auto it = annotations.find(std::string(key));
  return it == annotations.end() ? kNone : it->second;
}

std::string NoticeName(const std::string& pod) { return pod + "/notice"; }

std::string PodName(std::string_view job, int index, int incarnation) {
  return std::string(job) + "-" + std::to_string(index) + "-" + std::to_string(incarnation);
}

Decision::Decision(const JobSnapshot& snapshot, WallTime time, const DecideOptions& decide_options)
    : in(snapshot),
      now(WholeMicroseconds(time)),
      options(decide_options),
      status(snapshot.status),
      told(Told(snapshot)) {
  const JudgeContext context{now, in.job.spec.success,
                             told.target_met || in.status.target_time.has_value(),
                             in.job.spec.disruption.tolerated_unreachable, in.nodes_heard_since};
  for (const PodFacts& pod : in.pods) {
    const auto it = in.nodes.find(pod.node);
    const NodeFacts* node = it == in.nodes.end() ? nullptr : &it->second;
    Worker worker{&pod, node, Classify(pod, node, context), pod.deleted.has_value()};
    worker.speaking = worker.going && worker.verdict.fate == Fate::kAlive && !Counted(pod.name);
    workers.push_back(worker);
  }
  // ScaleDown relies on this order: of two workers of an index it keeps the first.
  std::sort(workers.begin(), workers.end(), [](const Worker& a, const Worker& b) {
    return std::pair(a.pod->index, a.pod->incarnation) <
           std::pair(b.pod->index, b.pod->incarnation);
  });
}

void Decision::Delete(Worker& worker, std::string_view why, std::optional<Duration> grace) {
  plan.deletes.push_back({worker.pod->name, worker.pod->uid, grace, why});
  worker.going = true;
  Count(worker.pod->name);  // what we delete ourselves is neither disruption nor failure
}

void Decision::Say(std::string_view why, std::string message, EventType type) {
  plan.events.push_back({type, why, std::move(message), false});
}

void Decision::WakeAt(WallTime time) { plan.requeue_at = std::min(plan.requeue_at, time); }

void Decision::Set(ConditionType type, bool on, std::string_view why, std::string message) {
  SetCondition(status, {type, on, std::string(why), std::move(message), in.job.generation, now});
}

bool Decision::Counted(const std::string& pod) const {
  return std::binary_search(status.counted.begin(), status.counted.end(), pod);
}

void Decision::Count(const std::string& pod) {
  const auto at = std::lower_bound(status.counted.begin(), status.counted.end(), pod);
  // Sorted, because Counted searches it, and because equal states must be equal statuses.
  if (at == status.counted.end() || *at != pod) status.counted.insert(at, pod);
}

namespace {

// Agents of two versions never meet in one job, whatever becomes of the operator: the image of its
// start is kept until it is suspended. Running workers say it where no status does.
void PinAgent(Decision& d) {
  std::string& pinned = d.status.agent_image;
  if (d.spec().suspend) pinned.clear();
  if (d.spec().suspend || !pinned.empty()) return;
  for (const Worker& worker : d.workers) {
    if (pinned.empty() && !worker.going) pinned = worker.pod->agent_image;
  }
  if (pinned.empty()) pinned = TextAt(d.spec().agent, "image");
  if (pinned.empty()) pinned = d.options.agent_image;
}

std::string WhatLimitsAgents(const Decision& d) {
  for (const Worker& worker : d.workers) {
    const std::string& limit = worker.pod->agent_cpu_limit;
    if (limit.empty() || worker.going) continue;
    return "; a LimitRange of the namespace holds agents to " + limit +
           " CPUs, which slows averaging down: spec.agent.resources says what they may use";
  }
  return "";
}

void SayWhetherAccepted(Decision& d) {
  if (!d.in.refused) {
    std::string message = "the spec is valid" + WhatLimitsAgents(d);
    for (const std::string* more : {&d.in.unguarded, &d.in.warnings})
      if (!more->empty()) message += "; " + *more;
    d.Set(ConditionType::kAccepted, true, reason::kValid, message);
    return;
  }
  const std::string message = d.in.refused->message + "; the job goes on with generation " +
                              std::to_string(d.in.job.generation);
  const Condition* before = d.in.status.Find(ConditionType::kAccepted);
  if (before == nullptr || before->on || before->message != message) {
    d.Say(reason::kInvalidSpec, message, EventType::kWarning);
  }
  d.Set(ConditionType::kAccepted, false, reason::kInvalidSpec, message);
  // The one condition that speaks of the newest spec.
  d.status.conditions.front().observed_generation = d.in.refused->generation;
}

// Only where it is so: the field may not change.
void SayWhatTravelsInTheClear(Decision& d) {
  if (!d.spec().tensors_in_clear) return;
  if (!d.in.status.Is(ConditionType::kTensorsInTheClear))
    d.Say(reason::kTlsDisabled, std::string(kInTheClear), EventType::kWarning);
  d.Set(ConditionType::kTensorsInTheClear, true, reason::kTlsDisabled, std::string(kInTheClear));
}

// Of an index that was scaled away, once its pod is gone and counted, one number is kept for all:
// names are never used twice, whatever the job grows to again.
void ForgetScaledAway(Decision& d) {
  std::map<int, int>& known = d.status.incarnations;
  std::set<int> here;
  for (const Worker& worker : d.workers) here.insert(worker.pod->index);
  for (auto it = known.lower_bound(d.spec().replicas); it != known.end();) {
    const auto [index, highest] = *it;
    const std::string last = PodName(d.in.job.name, index, highest);
    if (here.contains(index) || (highest > 0 && !d.Counted(last))) {
      ++it;
      continue;
    }
    d.status.incarnation_floor = std::max(d.status.incarnation_floor, highest);
    d.status.retry.erase(index);
    it = known.erase(it);
  }
}

// Who was to go and may stay after all, because the spec changed before it was deleted: its end is
// still to come. What peers report is judged anew each time and counted once (policy_reports.cc).
void ForgetSpared(Decision& d) {
  for (const Worker& worker : d.workers) {
    if (worker.alive() && !worker.pod->reported_dead)
      std::erase(d.status.counted, worker.pod->name);
  }
}

}  // namespace

void Begin(Decision& d) {
  d.WakeAt(d.in.look_again);
  PinAgent(d);
  d.status.observed_generation = d.in.refused ? d.in.refused->generation : d.in.job.generation;
  d.status.accepted_generation = d.in.accepted_generation;
  if (!d.status.start_time && !d.spec().suspend) d.status.start_time = d.now;
  std::set<std::string_view> present;
  for (const Worker& worker : d.workers) {
    present.insert(worker.pod->name);
    int& highest = d.status.incarnations[worker.pod->index];
    highest = std::max(highest, worker.pod->incarnation);
  }
  ForgetScaledAway(d);
  // The last name of an index is remembered until another is given: see CountVanished.
  std::set<std::string> last;
  // A finished job makes no more pods, so no name of it can be missed.
  if (!d.in.status.finished()) {
    for (const auto& [index, incarnation] : d.status.incarnations)
      last.insert(PodName(d.in.job.name, index, incarnation));
  }
  std::erase_if(d.status.counted, [&](const std::string& name) {
    const std::string pod = name.substr(0, name.find('/'));  // NoticeName
    return !present.count(pod) && !last.count(pod);
  });
  std::erase_if(d.status.avoided, [&](const AvoidedNode& one) { return d.now >= one.until; });
  std::erase_if(d.status.counted_failures,
                [&](WallTime at) { return d.now - at > d.spec().run.failure_window; });
  SayWhetherAccepted(d);
  SayWhatTravelsInTheClear(d);
}

Plan Decide(const JobSnapshot& snapshot, WallTime now, const DecideOptions& options) {
  // The garbage collector takes what a job owned, or sets it free (--cascade=orphan). Controllers
  // of Kubernetes leave what belongs to a deleted object alone.
  if (snapshot.job.deleting) {
    Plan nothing;
    nothing.status = snapshot.status;
    return nothing;
  }
  Decision decision(snapshot, now, options);
  for (const Policy policy : kChain) policy(decision);
  // After the chain, because only then it is known which workers stay.
  ForgetSpared(decision);
  decision.plan.status_changed = !(decision.status == snapshot.status);
  decision.plan.status = std::move(decision.status);
  return std::move(decision.plan);
}

}  // namespace crowdsurf::controller
