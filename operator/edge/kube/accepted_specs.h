// AcceptedSpecs: the last specs of each job that could be run, kept as ControllerRevisions that the
// job owns, so that an edit that cannot be run, or an operator that is stricter than the one
// before, stops nothing.
//
// A spec is kept when it is accepted, under the number of its generation; the two newest stay. The
// host's thread. Nothing is held here of a job whose newest spec is in order but a number; of the
// others the spec that runs. Source: StatefulSet's and DaemonSet's revision history.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "operator/core/job/training_job.h"
#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::controller {

class AcceptedSpecs {
 public:
  // client outlives this.
  AcceptedSpecs(KubeClient& client, std::function<WallTime()> clock, Logger log);

  struct Kept {
    int64_t generation = 0;                 // 0: none
    WallTime again = WallTime::Infinite();  // when to try again what could not be kept
  };
  // job's spec is accepted. kept: the generation that its status says is kept, 0 for none. What
  // could not be kept is tried again a while later, and a newer spec at once.
  Kept Keep(const TrainingJob& job, int64_t kept);
  // The job with the spec, and the generation, that was kept last. Errors: NotFound, none was; the
  // API server's.
  StatusOr<TrainingJob> LastOf(const TrainingJob& job);
  // The same where it is known already: nothing is asked for. nullptr: it is not.
  const TrainingJob* Running(const std::string& job_uid) const {
    const auto known = runs_.find(job_uid);
    return known == runs_.end() ? nullptr : &known->second;
  }
  void Forget(const std::string& job_uid);

 private:
  struct Known {
    int64_t generation = 0, tried = 0;
    WallTime not_before;  // of the next try of the one that was tried
  };
  Status Write(const TrainingJob& job);
  Status Prune(const TrainingJob& job);
  StatusOr<KubeList> ListOf(const TrainingJob& job);

  KubeClient& client_;
  const std::function<WallTime()> clock_;
  const Logger log_;
  std::map<std::string, Known> known_;       // by the job's uid
  std::map<std::string, TrainingJob> runs_;  // of jobs whose newest spec cannot be run
};

}  // namespace crowdsurf::controller
