#include <algorithm>
#include <cmath>

#include "operator/core/decide/decision.h"
#include "operator/core/job/failure_text.h"

// What a person sees: counts, and conditions whose reasons name the blocking cause.
namespace crowdsurf::controller {
namespace {

constexpr Duration kLookAgain = Seconds(10);  // at workers that are late for no reason known yet
// Steps in a unit of what a person reads.
constexpr double kLossSteps = 10'000, kRateSteps = 100, kGoodputSteps = 100;

void CountWorkers(Decision& d) {
  d.status.replicas = d.status.ready_replicas = d.status.spot_replicas = 0;
  for (const Worker& worker : d.workers) {
    if (!worker.alive()) continue;
    ++d.status.replicas;
    d.status.ready_replicas += worker.pod->ready_since.has_value();
    d.status.spot_replicas += worker.pod->capacity == CapacityType::kSpot;
  }
  // Workers of a suspended job train until they have gone. They must not start its clock again.
  if (d.status.ready_replicas > 0 && !d.status.running_time && !d.spec().suspend) {
    d.status.running_time = d.now;
  }
}

std::string OfWanted(const Decision& d) {
  return std::to_string(d.status.ready_replicas) + " of " + std::to_string(d.spec().replicas) +
         " workers train";
}

// "; last WORKER REASON: what it said"; empty: none has failed.
std::string LastFailure(const Decision& d) {
  if (!d.status.last_failure) return {};
  const FailureNote& note = *d.status.last_failure;
  const std::string line = FailureLine(note.reason, note.output);
  return "; last " + note.worker + " " + note.reason + (line.empty() ? "" : ": " + line);
}

std::string WhyItBacksOff(const Decision& d, int index, const RetryState& retry) {
  const std::string worker = "worker " + std::to_string(index);
  if (retry.failures > 0) {
    return worker + " failed " + std::to_string(retry.failures) + " times" + LastFailure(d);
  }
  std::string text =
      worker + " was taken " + std::to_string(retry.disruptions) + " times before it ran";
  if (d.status.last_refusal) {
    const RefusalNote& note = *d.status.last_refusal;
    text += "; last " + note.worker + " was refused by node " + note.node + ": " + note.message;
  }
  return text;
}

// A quota or a LimitRange may refuse the agent's container, which the user has not written. A
// LimitRange names none. Source: kubernetes plugin/pkg/admission/{resourcequota,limitranger}.
std::string WithHelp(const std::string& refusal) {
  const bool of_agent = refusal.find(kAgentContainer) != std::string::npos ||
                        refusal.find(" per Container is ") != std::string::npos ||
                        refusal.find(" ratio per Container ") != std::string::npos;
  if (!of_agent) return refusal;
  return refusal + "; spec.agent.resources says what the agent's container asks for";
}

// The first cause, in the order in which a person would want to know it.
std::pair<std::string_view, std::string> BlockingCause(const Decision& d) {
  if (d.in.obstacle) return {d.in.obstacle->reason, d.in.obstacle->message};
  if (d.spec().replicas > d.wanted()) {
    return {reason::kTooManyWorkers, "replicas " + std::to_string(d.spec().replicas) +
                                         " is above this operator's limit of " +
                                         std::to_string(d.wanted()) + " workers a job"};
  }
  // The view must outlive the snapshot, so it is the constant's and not the refusal's.
  if (d.in.refusal) {
    for (const std::string_view known :
         {reason::kQuota, reason::kForbidden, reason::kInvalidTemplate}) {
      if (d.in.refusal->reason == known) return {known, WithHelp(d.in.refusal->message)};
    }
    return {reason::kCannotCreate, WithHelp(d.in.refusal->message)};
  }
  for (const std::string_view known :
       {reason::kImagePull, reason::kCannotStart, reason::kInitContainer, reason::kNoSpotCapacity,
        reason::kUnschedulable, reason::kSchedulingGated}) {
    for (const Worker& worker : d.workers) {
      if (worker.alive() && worker.pod->waiting_reason == known) {
        return {known, worker.pod->name + ": " + worker.pod->waiting_message};
      }
    }
  }
  for (const auto& [index, retry] : d.status.retry) {
    if (index < d.spec().replicas && d.now < retry.not_before) {
      return {reason::kBackingOff, WhyItBacksOff(d, index, retry)};
    }
  }
  if (auto cause = WhyNobodySteps(d)) return *std::move(cause);
  return {d.status.running_time ? reason::kReplacing : reason::kWorkersStarting, OfWanted(d)};
}

// Causes that a person must know of, beyond workers that come and go.
bool NeedsSaying(std::string_view why) {
  return why != reason::kReplacing && why != reason::kWorkersStarting && why != reason::kBackingOff;
}

// A worker has its machine and does not run yet.
bool AnyStarts(const Decision& d) {
  return std::any_of(d.workers.begin(), d.workers.end(), [](const Worker& worker) {
    return worker.alive() && worker.pod->phase == PodPhase::kPending && !worker.pod->node.empty();
  });
}

// A trainer has ended well and its agent has not said why: the job may be over, or be short of a
// worker. Until that is known the screen stays as it was.
bool AwaitsLastWords(const Decision& d) {
  return std::any_of(d.workers.begin(), d.workers.end(), [](const Worker& worker) {
    return (worker.alive() || worker.speaking) && worker.pod->trainer &&
           worker.pod->trainer->exit_code == 0;
  });
}

void SetWorking(Decision& d) {
  const bool known = d.in.status.Find(ConditionType::kDegraded) != nullptr;
  if (d.mode == Mode::kWorking && known && AwaitsLastWords(d)) return;
  // minReplicas may be 0, but a job without a worker does not run.
  const bool running = d.status.ready_replicas >= std::max(1, d.spec().min_replicas);
  d.Set(ConditionType::kRunning, running,
        running         ? reason::kWorkersTraining
        : d.in.obstacle ? d.in.obstacle->reason
                        : reason::kWorkersStarting,
        OfWanted(d));
  if (d.mode == Mode::kFinishing) {  // whoever has ended is not missing
    d.Set(ConditionType::kDegraded, false, reason::kTargetMet, "");
    return;
  }
  if (d.status.ready_replicas >= d.spec().replicas) {
    d.Set(ConditionType::kDegraded, false, reason::kAllWorkersReady, "");
    return;
  }
  LookAtStarts(d);
  auto [why, message] = BlockingCause(d);
  const Condition* before = d.in.status.Find(ConditionType::kDegraded);
  const bool news = before == nullptr || before->reason != why;
  if (news && NeedsSaying(why)) d.Say(why, message, EventType::kWarning);
  // Some causes show nowhere but where one has to ask.
  if (!NeedsSaying(why) && AnyStarts(d)) d.WakeAt(d.now + kLookAgain);
  d.Set(ConditionType::kDegraded, true, why, std::move(message));
}

// Workers that do not see each other train on apart, and each line has a model of its own. In no
// status of a job that never had it.
void SetLineages(Decision& d) {
  const bool was = d.in.status.Is(ConditionType::kTwoLineages);
  const bool working = d.mode == Mode::kWorking || d.mode == Mode::kFinishing;
  if (working && d.told.lineages > 1) {
    const std::string words = "workers train in " + std::to_string(d.told.lineages) +
                              " lines that do not see each other; only one of their models is kept";
    if (!was) d.Say(reason::kTwoLineages, words, EventType::kWarning);
    d.Set(ConditionType::kTwoLineages, true, reason::kTwoLineages, words);
  } else if (was && !(working && d.told.lineages == 0)) {  // 0: nobody has said anything yet
    const bool one = working;
    if (one) d.Say(reason::kOneLineage, "workers train in one line again");
    d.Set(ConditionType::kTwoLineages, false, one ? reason::kOneLineage : reason::kFinished, "");
  }
}

double Rounded(double value, double steps) { return std::round(value * steps) / steps; }

// The samples of the job over what its replicas would have done without loss: in each stretch
// between two reports as many as `replicas` at the rate told at its end, by workers that trained
// in it. Suspended time is in no stretch. Never above 1: rates are not that exact.
void MeasureGoodput(Decision& d) {
  Progress& progress = d.status.progress;
  if (d.told.samples_per_second > 0) {
    progress.samples_per_second = Rounded(d.told.samples_per_second, kRateSteps);
  }
  if (!d.status.running_time || progress.samples_per_second <= 0) return;
  // Whoever resumes a job begins its running time anew.
  const WallTime from =
      std::max(progress.measured.value_or(*d.status.running_time), *d.status.running_time);
  progress.measured = d.now;
  progress.ideal_samples +=
      std::round(progress.samples_per_second * d.spec().replicas * (d.now - from).seconds());
  if (progress.ideal_samples <= 0) return;
  progress.goodput = Rounded(
      std::min(1.0, static_cast<double>(progress.samples) / progress.ideal_samples), kGoodputSteps);
}

void TakeProgress(Decision& d) {
  Progress& progress = d.status.progress;
  const Progress& told = d.told;
  const bool news = told.samples > progress.samples;
  progress.samples = std::max(progress.samples, told.samples);  // never backwards on a screen
  progress.step = std::max(progress.step, told.step);
  progress.averaging = std::max(progress.averaging, told.averaging);
  if (told.loss) progress.loss = Rounded(*told.loss, kLossSteps);
  // Without new samples nothing is measured: the clock alone must not change a status.
  if (news) MeasureGoodput(d);
  progress.target_met = d.status.target_time.has_value();
}

}  // namespace

void WriteConditions(Decision& d) {
  CountWorkers(d);
  TakeProgress(d);
  if (d.mode == Mode::kFinished || d.mode == Mode::kSuspended) {
    const std::string_view why =
        d.mode == Mode::kSuspended ? reason::kSuspendedByUser : reason::kFinished;
    d.Set(ConditionType::kRunning, false, why, "");
    d.Set(ConditionType::kDegraded, false, why, "");
  } else {
    SetWorking(d);
  }
  SetLineages(d);
  const bool met = d.status.target_time.has_value();
  d.Set(ConditionType::kTargetReached, met, met ? reason::kTargetMet : reason::kTargetOpen, "");
}

}  // namespace crowdsurf::controller
