// Decision: what the policies behind Decide share while one plan is made. Private to operator/core.
//
// Each policy reads the snapshot and what earlier policies concluded, and adds to the plan. Single
// sequence; lives for one call. Bounds are those of the snapshot.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "operator/core/decide/classify.h"
#include "operator/core/decide/decide.h"

namespace crowdsurf::controller {

enum class Mode {
  kWorking,    // keep `replicas` workers training
  kFinishing,  // the target is met: let workers end, create none
  kSuspended,  // no pods
  kFinished    // succeeded or failed: clean up
};

struct Worker {
  const PodFacts* pod;
  const NodeFacts* node;  // nullptr: not placed, or gone
  Verdict verdict;
  bool going = false;  // deleted before or by this plan
  // Deleted for its last words, which say whether its trainer's good end was the job's: until then
  // its index is not free.
  bool speaking = false;

  bool alive() const { return !going && verdict.fate == Fate::kAlive; }
};

// Nothing but its peers' word says that it is gone (and what confirmed it).
bool OnPeersWord(const Worker& worker);

struct Decision {
  Decision(const JobSnapshot& snapshot, WallTime time, const DecideOptions& decide_options);

  const JobSnapshot& in;
  const WallTime now;
  const DecideOptions& options;
  Mode mode = Mode::kWorking;
  std::vector<Worker> workers;  // by index, then incarnation
  TrainingJobStatus status;     // as it will be
  std::set<int> unheard;        // indices whose last pod is asked for: it may be there
  Progress told;                // by agents that were asked and by those that ended
  Plan plan;
  // Set by a policy that found the job to have failed: reason and message.
  std::optional<std::pair<std::string_view, std::string>> failure;

  const TrainingJobSpec& spec() const { return in.job.spec; }
  // Workers that may be made: the spec's, within the operator's limit.
  int wanted() const { return std::min(spec().replicas, options.max_workers); }
  void Delete(Worker& worker, std::string_view reason, std::optional<Duration> grace = {});
  void Say(std::string_view reason, std::string message, EventType type = EventType::kNormal);
  void WakeAt(WallTime time);  // at the latest
  // Sets, or leaves with its old instant when nothing changed.
  void Set(ConditionType type, bool on, std::string_view reason, std::string message);
  bool Counted(const std::string& pod) const;
  void Count(const std::string& pod);
};

// Under it a status counts that the disruption of a notice to `pod` is counted: no pod has it.
std::string NoticeName(const std::string& pod);
// Deterministic jitter: one job's workers that fall together do not come back together, and the
// same snapshot still gives the same plan.
Rng RngFor(const Decision& d, const std::string& pod);

// Of CountEnds: a worker that the platform took, and those that are there no more.
void Disrupted(Decision& d, const Worker& worker);
void CountVanished(Decision& d);

// Of WriteConditions. Why workers that run do not train, as reason and message, once they have for
// half a minute; and that it is looked at again then.
std::optional<std::pair<std::string_view, std::string>> WhyNobodySteps(const Decision& d);
void LookAtStarts(Decision& d);

// In the order in which Decide calls them.
void Begin(Decision& d);            // observedGeneration, start time, what is forgotten
void JudgeReports(Decision& d);     // whom peers report dead and who waits for its turn
void CountEnds(Decision& d);        // successes, disruptions, failures; each pod once
void JudgeJob(Decision& d);         // target, success, failure, deadlines, suspend: sets the mode
void SendNotices(Decision& d);      // marks become annotations, withdrawn marks cancel them
void RemovePods(Decision& d);       // what ended, is marked and due, is stuck, or must go
void ScaleDown(Decision& d);        // surplus and indices beyond replicas
void CreateMissing(Decision& d);    // replacements and first workers, with capacity and back-off
void InformAgents(Decision& d);     // seeds and configuration
void WriteConditions(Decision& d);  // counts, conditions, progress

// Shared by CreateMissing and InformAgents.
std::string ConfigFor(const TrainingJob& job);
std::vector<std::string> SeedsFor(const Decision& d, const std::string& own_address);
// The instant of crowdsurf.io/notified-at; nullopt: nothing was told lately, or it cannot be read.
std::optional<WallTime> NotifiedAtOf(const PodFacts& pod);

}  // namespace crowdsurf::controller
