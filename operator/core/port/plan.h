// Plan: what Decide wants done, as data; an edge executes it.
//
// Creates may run in parallel with slow start; then deletes and annotations; the status is written
// once, last, and only when it changed. Every action carries a reason of reasons.h. Names are
// deterministic, so a plan that was half executed before a crash is safe to execute again:
// AlreadyExists with our uid is success. Pure values, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "operator/core/job/training_job.h"

namespace crowdsurf::controller {

struct CreatePod {
  std::string name;  // <job>-<index>-<incarnation>
  int index = 0;
  int incarnation = 0;
  CapacityType capacity = CapacityType::kSpot;
  std::string seeds;   // content of the annotation: host:port, one a line
  std::string config;  // content of the annotation: JSON
  std::string_view reason;
  std::vector<std::string> avoid_nodes = {};  // a node that died without a word is Ready for 46 s
  std::string agent_image = {};               // empty: the spec's or the operator's
  std::vector<std::string> other_nodes_first = {};  // these are taken where no other node fits
};

struct DeletePod {
  std::string name;
  std::string uid;                // precondition
  std::optional<Duration> grace;  // absent: the pod's own; zero: force
  std::string_view reason;
};

struct AnnotatePod {
  std::string name;
  std::string uid;
  std::string_view key;
  std::string value;  // empty: withdrawn
  std::string_view reason;
};

enum class EventType { kNormal, kWarning };  // as Kubernetes has them

struct Event {
  EventType type = EventType::kNormal;
  std::string_view reason;
  std::string message;
  bool ends_job = false;  // it says how: written also where a budget of events is used up
};

struct Plan {
  std::vector<CreatePod> creates;
  std::vector<DeletePod> deletes;
  std::vector<AnnotatePod> annotations;
  std::vector<Event> events;
  // Pods that the status knows and the snapshot lacks, where the snapshot may be behind
  // (asks_pods): the platform is asked for each, and the job is decided on again then.
  std::vector<std::string> ask_pods;
  TrainingJobStatus status;
  bool status_changed = false;
  bool delete_job = false;                     // its time to live after the end is over
  WallTime requeue_at = WallTime::Infinite();  // decide again then, if nothing happens before
};

std::string PodName(std::string_view job, int index, int incarnation);

}  // namespace crowdsurf::controller
