// JobObjects: what a job's pods need beside them: its CA, its Service, and the guards that its spec
// asks for (a PodDisruptionBudget, a NetworkPolicy).
//
// An object is made when its name is free and changed only while its controller is this job's uid,
// with the version that was read as a precondition; another's is never touched (ownership.h). What
// stands in the way is told as an obstacle, looked at again every few seconds while somebody asks,
// and gone when it is gone. Anybody may delete these objects, so they are looked at again with a
// create after five minutes or a gap in the watches, and when a worker is late. The host's thread.
// Bound: one entry a job. Source: docs/kubernetes.md.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "operator/core/port/snapshot.h"
#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::controller {

class JobObjects {
 public:
  // trust: what the agents of a job believe, PEM. client outlives this.
  JobObjects(KubeClient& client, std::function<StatusOr<std::string>(const TrainingJob&)> trust,
             std::function<WallTime()> clock, Logger log);

  // All that must be there before a worker is made. FailedPrecondition: see obstacle(). Other
  // errors: the server's, only where it was not there before.
  Status Ensure(const TrainingJob& job);
  // As Ensure for a job that wants workers and has none; at most one try in a few seconds, and no
  // error: the next pod that is made meets it.
  void Prepare(const TrainingJob& job);
  // The same for a job that has workers: only what is obstructed, or missed by a late worker.
  void Retry(const TrainingJob& job);
  // They may be gone: of one job, whose worker is late; of all, with their next create.
  void Doubt(const std::string& job_uid);
  void DoubtAll();
  // An edit may ask for other guards; the Service and the CA never change. What could not be
  // followed is tried again a while later, and a newer edit at once. Returns when to call again;
  // infinite when the guards are those of this edit.
  WallTime FollowEdit(const TrainingJob& job);
  bool ensured(const std::string& job_uid) const;
  // What its agents trust, PEM; empty before Ensure was OK.
  std::string trust(const std::string& job_uid) const;

  // As of the last try.
  std::optional<Obstacle> obstacle(const std::string& job_uid) const;
  // The guard of an edit that cannot be, and why; empty: none.
  std::string unguarded(const std::string& job_uid) const;
  void Forget(const std::string& job_uid) { known_.erase(job_uid); }

 private:
  struct Known {
    bool ensured = false;
    bool doubted = false, missed = false;  // look again: with the next create; at once
    WallTime looked;
    std::string trust;
    int64_t guards_of = 0, guards_tried = 0;  // generations
    WallTime not_before;                      // of the next try
    std::optional<Obstacle> obstacle;
    std::string unguarded;
  };
  Status TryAll(const TrainingJob& job, Known& known);
  Status EnsureGuards(const TrainingJob& job);
  Status Put(const TrainingJob& job, const std::string& path, const nlohmann::json& object);
  Status Meet(const TrainingJob& job, const std::string& path, const nlohmann::json& object,
              const nlohmann::json& found);
  Status Remove(const TrainingJob& job, const std::string& path);

  KubeClient& client_;
  const std::function<StatusOr<std::string>(const TrainingJob&)> trust_;
  const std::function<WallTime()> clock_;
  const Logger log_;
  std::map<std::string, Known> known_;  // by the job's uid
};

}  // namespace crowdsurf::controller
