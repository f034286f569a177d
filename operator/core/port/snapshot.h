// JobSnapshot: everything that Decide looks at, as observed facts.
//
// The host (a Kubernetes cache or the local cluster) fills it; nothing here knows where pods run.
// A pod of Kubernetes and a local process group are the same PodFacts; a cloud's taint and the
// local spot market's notice are the same Mark. Instants are wall-clock time, because an operator
// restarts and its status must still mean the same. Pure values, any thread.
// Source: reference docs/pod-lifecycle.md 1-4.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "operator/core/job/training_job.h"

namespace crowdsurf::controller {

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed, kUnknown };

// How a container ended.
struct ContainerEnd {
  int exit_code = 0;   // 128 + signal for signals
  std::string reason;  // "OOMKilled", "Hung", "Error", "Completed", "" when unknown
  std::string output;  // the end of what it printed; the edge bounds it
  std::optional<WallTime> at = std::nullopt;  // when, where that is known
  bool operator==(const ContainerEnd&) const = default;
};

struct PodFacts {
  std::string name;
  std::string uid;
  int index = 0;
  int incarnation = 0;
  PodPhase phase = PodPhase::kPending;
  std::string node;  // empty until placed
  CapacityType capacity = CapacityType::kSpot;
  WallTime created;
  std::optional<WallTime> ready_since;  // trains now
  bool ever_ready = false;
  std::optional<WallTime> deleted;  // deletionTimestamp: when it was told to go
  Duration grace;                   // of that deletion
  std::string status_reason;        // pod.status.reason
  std::string status_message;       // and its message
  std::string disruption_target;    // reason of condition DisruptionTarget=True, else empty
  std::vector<PodCondition> conditions;
  std::optional<ContainerEnd> trainer;  // set once it has ended
  std::optional<ContainerEnd> agent;
  // The init container of the user's that runs, and since when, or that has ended the pod's start.
  std::string init_name;
  std::optional<WallTime> init_since;
  std::optional<ContainerEnd> init;
  std::optional<WallTime> started;  // since when its trainer runs; unset once it has trained
  std::string wait;                 // why it does not train, as its agent says (start_cause.h)
  // A container beside the trainer, which is no sidecar, has not ended: kubelet keeps the agent up.
  bool others_run = false;
  std::optional<Progress> last_words;  // what the agent left behind when it ended
  std::string waiting_reason;          // why it is Pending: one of reasons.h, or empty
  std::string waiting_message;
  std::map<std::string, std::string> annotations;  // ours: notice, config, seeds
  std::string address;                             // host:port of the agent's gRPC, once known
  std::string agent_image;
  std::string agent_cpu_limit;  // one that a LimitRange of the namespace has set, not we
  bool reported_dead = false;   // by its peers, confirmed (death_reports.h)
  bool lease_stale = false;     // and its node's Lease is: evidence that is in the API

  // The annotation's value, empty when absent.
  const std::string& Annotation(std::string_view key) const;
  bool operator==(const PodFacts&) const = default;
};

// The platform says that this node is going away.
struct Mark {
  std::string signal;                // which row of the table of marks: for people
  std::optional<WallTime> deadline;  // when it will be gone, where the cloud says so
  bool weak = false;                 // a cordon alone: prepare, do not drain
  bool operator==(const Mark&) const = default;
};

struct NodeFacts {
  std::optional<WallTime> not_ready_since;
  // When, since then, its kubelet's Lease was seen to be renewed: the machine lives, and it is the
  // control plane that has not heard it yet (minutes may pass after an API server's restart).
  std::optional<WallTime> renewed_at;
  std::optional<Mark> mark;
  bool unknown = false;  // its watch is late, and the server is being asked whether it is there
  bool operator==(const NodeFacts&) const = default;
};

// The last create that the API server refused.
struct CreateRefusal {
  std::string reason;  // kQuota, kForbidden, kInvalidTemplate, kCannotCreate
  std::string message;
  WallTime at;
  int attempts = 1;  // in a row
};

// Why no worker can be made before something else is as it must be.
struct Obstacle {
  std::string_view reason;  // kNameTaken, kLeftovers
  std::string message;
  bool operator==(const Obstacle&) const = default;
};

// The newest spec, where it cannot be run.
struct RefusedSpec {
  int64_t generation = 0;
  std::string message;  // which fields are wrong, and how
};

struct JobSnapshot {
  TrainingJob job;  // with the spec that runs, and its generation
  std::optional<RefusedSpec> refused;
  std::string warnings;             // of the spec that runs: fields that do not act; empty: none
  int64_t accepted_generation = 0;  // whose spec is kept for such a time; 0: none
  TrainingJobStatus status;         // as last written
  std::vector<PodFacts> pods;
  // The pods come by a watch of their own and may be older than the status, as with a leader that
  // has just taken over: one that is missing counts as gone only when it was asked for by name and
  // is in gone_pods. False: what is not in `pods` is gone.
  bool asks_pods = false;
  std::set<std::string> gone_pods;
  std::map<std::string, NodeFacts> nodes;  // a pod's node that is not here is gone
  // Since when some node of the cluster is Ready again; infinite while none is. Then it is the
  // control plane that does not hear, no machine is dead because of it, and each gets its full time
  // to be heard again (Kubernetes' own full disruption mode).
  WallTime nodes_heard_since;
  // When workers were deleted because their peers reported them, for a minute at least.
  std::vector<WallTime> deleted_on_word;
  // Where workers are, or lately were, that their peers report dead; empty when there is no other
  // node: what comes now must not be placed there.
  std::vector<std::string> suspect_nodes;
  Progress progress;  // as the agents last told
  std::optional<CreateRefusal> refusal;
  // When a worker's pod last went from the namespace; unset: none has. It makes room in a quota.
  std::optional<WallTime> pod_gone_at;
  std::optional<Obstacle> obstacle;
  std::string unguarded;  // a guard that an edit asks for and that cannot be: why; empty: none
  WallTime look_again = WallTime::Infinite();  // what failed beside the pods is tried again then
  // Uids of workers that could not be told at the last try: nothing waits for their kubelets.
  std::set<std::string> untold;
};

}  // namespace crowdsurf::controller
