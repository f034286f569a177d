// TrainingJob: the spec and status of a job as plain values, and how they read from JSON.
//
// FromJson expects a spec that Validate (validate.h) found faultless and that WithDefaults filled;
// it never fails on such input. What the operator only passes on (the pod template, the averaging
// block that agents read) stays JSON. Pure values, any thread. Source: docs/manifest.md.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/manifest/field_defaults.h"
#include "base/time.h"
#include "operator/core/job/reasons.h"

namespace crowdsurf::controller {

using manifest::ChoiceDefault;
using manifest::IntegerDefault;
using manifest::NumberDefault;

// Enumerators stand in the order of the field's choices.
enum class CapacityType { kSpot, kOnDemand, kAny };
enum class SuccessCriterion { kTargetReached, kAllSucceeded, kAnySucceeded };
enum class FailureAction { kFailJob, kReplaceWorker, kIgnore, kCount };
enum class CleanPodPolicy { kRunning, kAll, kNone };

std::string_view Name(CapacityType type);  // "Spot", "OnDemand", "Any"

struct CapacitySpec {
  CapacityType type = ChoiceDefault<CapacityType>("capacity.type");
  int on_demand_base = IntegerDefault<int>("capacity.onDemandBase");
  int on_demand_percentage_above_base = IntegerDefault<int>("capacity.onDemandPercentageAboveBase");
  Duration fallback_after = Seconds(NumberDefault("capacity.fallback.afterSeconds"));
  int fallback_max_on_demand = IntegerDefault<int>("capacity.fallback.maxOnDemand");
};

struct PodCondition {
  std::string type;
  std::string status;
  auto operator<=>(const PodCondition&) const = default;
};

struct FailureRule {
  std::string name;
  std::vector<int> exit_codes;  // of onExitCodes; empty: the rule looks at conditions
  bool exit_codes_in = true;    // operator In, else NotIn
  std::vector<PodCondition> conditions;
  FailureAction action = ChoiceDefault<FailureAction>("failurePolicy.rules[].action");
};

struct RunPolicy {
  int backoff_limit = IntegerDefault<int>("runPolicy.backoffLimit");
  Duration failure_window = Seconds(NumberDefault("runPolicy.failureWindowSeconds"));
  std::optional<Duration> active_deadline;
  std::optional<Duration> start_deadline;
  std::optional<Duration> ttl_after_finished;
  CleanPodPolicy clean_pods = ChoiceDefault<CleanPodPolicy>("runPolicy.cleanPodPolicy");
};

struct DisruptionPolicy {
  Duration grace = Seconds(NumberDefault("disruption.graceSeconds"));
  Duration tolerated_unreachable = Seconds(NumberDefault("disruption.toleratedUnreachableSeconds"));
  Duration force_delete_after = Seconds(NumberDefault("disruption.forceDeleteAfterSeconds"));
};

struct TrainingJobSpec {
  int replicas = IntegerDefault<int>("replicas");
  int min_replicas = IntegerDefault<int>("minReplicas");
  int max_replicas = replicas;
  bool suspend = false;
  CapacitySpec capacity;
  SuccessCriterion success = ChoiceDefault<SuccessCriterion>("successPolicy.criterion");
  std::vector<FailureRule> failure_rules;
  RunPolicy run;
  DisruptionPolicy disruption;
  std::vector<std::string> bootstrap_peers;
  nlohmann::json averaging;   // with every default; the agents' `config`
  nlohmann::json target;      // idem
  nlohmann::json checkpoint;  // idem
  nlohmann::json agent;       // with every default; of pods only
  nlohmann::json scheduling;  // idem
  bool do_not_disrupt = false;
  nlohmann::json max_unavailable;  // of a PodDisruptionBudget, number or "10%"; null: none
  bool managed_network = false;    // a NetworkPolicy of the job's own
  bool tensors_in_clear = false;   // tls.mode is Disabled
  std::string managed_by;
  nlohmann::json pod_template;  // PodTemplateSpec, untouched
};

// Of one worker index that has failed lately: when it may be tried again.
struct RetryState {
  int failures = 0;  // in a row
  WallTime not_before;
  int disruptions = 0;  // in a row, of pods that the platform took before they ran
  auto operator<=>(const RetryState&) const = default;
};

// The last worker that failed, for people: bounded, so a status stays small.
struct FailureNote {
  std::string worker;
  std::string reason;
  int exit_code = 0;
  std::string output;  // the end of what it printed, at most kMaxOutputInStatus bytes
  WallTime at;
  auto operator<=>(const FailureNote&) const = default;
};

// The last worker that a node refused, for people; kubelet's words, cut by policy_disruptions.cc.
struct RefusalNote {
  std::string worker;
  std::string node;
  std::string message;
  WallTime at;
  auto operator<=>(const RefusalNote&) const = default;
};

// A node that has refused a worker: until then others are preferred.
struct AvoidedNode {
  std::string node;
  WallTime until;
  auto operator<=>(const AvoidedNode&) const = default;
};

inline constexpr size_t kMaxOutputInStatus = 4096;  // an object of Kubernetes holds 1.5 MB in all

struct Condition {
  ConditionType type = ConditionType::kAccepted;
  bool on = false;
  std::string reason;
  std::string message;
  int64_t observed_generation = 0;
  WallTime changed;  // when `on` last changed
  auto operator<=>(const Condition&) const = default;
};

struct Progress {
  uint64_t samples = 0;  // of the job
  uint64_t step = 0;     // of the furthest worker
  std::optional<double> loss;
  uint64_t averaging = 0;
  bool target_met = false;
  double samples_per_second = 0;  // of one worker while it trains; 0: unknown
  int lineages = 0;  // that train apart (lineage_watch.h), as agents last told; in no status
  // Only in a status (policy_conditions.cc): samples / ideal_samples; what the replicas would have
  // done without loss until `measured`; 0: not measured yet.
  std::optional<double> goodput = {};
  double ideal_samples = 0;
  std::optional<WallTime> measured = {};
  auto operator<=>(const Progress&) const = default;
};

struct TrainingJobStatus {
  int64_t observed_generation = 0;    // the newest that was looked at
  int64_t accepted_generation = 0;    // the newest whose spec is kept; 0: none
  std::vector<Condition> conditions;  // at most one a type, in the order of ConditionType
  int replicas = 0;                   // pods that count: alive, not told to leave
  int ready_replicas = 0;
  int spot_replicas = 0;
  uint64_t disruptions = 0;
  std::map<std::string, uint64_t> disruptions_by_reason;  // closed set: reasons.h
  std::optional<WallTime> last_disruption;
  std::optional<RefusalNote> last_refusal;
  std::vector<AvoidedNode> avoided;        // by name
  uint64_t failures = 0;                   // all
  std::vector<WallTime> counted_failures;  // those in the window; at most backoffLimit + 1
  std::optional<FailureNote> last_failure;
  std::map<int, int> incarnations;  // index -> highest ever used
  // The highest ever used by an index that is not in `incarnations`: one that was scaled away.
  int incarnation_floor = 0;
  std::map<int, RetryState> retry;  // index -> back-off
  std::vector<int> succeeded;       // indices whose trainer ended with 0, sorted
  std::string agent_image;          // of every agent since the job's start; empty: not started
  // Sorted: pods that ended and are counted but not gone yet, and the last name of an index whose
  // pod is gone or was never made. At most one an index beyond the pods there are. A pod's notice
  // that is counted has an entry of its own (decision.h, NoticeName).
  std::vector<std::string> counted;
  std::optional<WallTime> start_time;
  std::optional<WallTime> running_time;      // first worker Ready
  std::optional<WallTime> target_time;       // target met
  std::optional<WallTime> spot_short_since;  // since when spot has had no room
  std::optional<WallTime> completion_time;
  Progress progress;

  auto operator<=>(const TrainingJobStatus&) const = default;

  const Condition* Find(ConditionType type) const;
  bool Is(ConditionType type) const;  // present and on
  bool finished() const { return Is(ConditionType::kSucceeded) || Is(ConditionType::kFailed); }
};

struct TrainingJob {
  std::string name;
  std::string space;  // metadata.namespace
  std::string uid;
  int64_t generation = 1;
  WallTime created;
  bool deleting = false;
  TrainingJobSpec spec;
};

// Puts it in its place; `changed` keeps its instant while `on` stays as it was.
void SetCondition(TrainingJobStatus& status, Condition condition);

// Who reconciles unless spec.managedBy says otherwise.
inline constexpr std::string_view kManagedByUs = manifest::TextDefault("managedBy");

// Pre: `spec` passed Validate and WithDefaults.
TrainingJobSpec SpecFromJson(const nlohmann::json& spec);
// A spec that some version found faultless, without its defaults; nullopt: this one cannot read it.
std::optional<TrainingJobSpec> ReadSpec(const nlohmann::json& spec);

// As `status` of the Kubernetes object: RFC 3339 instants, camel case, only what is set.
nlohmann::json StatusToJson(const TrainingJobStatus& status);
// What StatusToJson wrote; fields that are missing or of another type keep their defaults.
TrainingJobStatus StatusFromJson(const nlohmann::json& status);

}  // namespace crowdsurf::controller
