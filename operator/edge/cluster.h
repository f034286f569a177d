// Cluster: the port through which the reconciler sees and changes the platform.
//
// Two platforms stand behind it: a Kubernetes API server and this machine (local_cluster.h). Calls
// are made from one thread. Every failure is a Status that the reconciler turns into a refusal of
// the next snapshot; nothing is retried behind the port.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "operator/core/plan.h"
#include "operator/core/snapshot.h"

namespace crowdsurf::controller {

class Cluster {
 public:
  virtual ~Cluster() = default;

  // Everything about `job`. Contains every pod that Create made and that is not gone: a stale
  // cache must wait for its own writes (expectations). Error: NotFound when the job is gone.
  virtual StatusOr<JobSnapshot> Observe(const std::string& job) = 0;

  // Errors: ResourceExhausted (quota, disk), PermissionDenied, InvalidArgument (the template),
  // others. A pod of that name that is ours already is success.
  virtual Status Create(const TrainingJob& job, const CreatePod& create) = 0;
  // All of them, each with its own answer, in that order; a platform may make them at once.
  virtual std::vector<Status> CreateAll(const TrainingJob& job,
                                        std::span<const CreatePod> creates) {
    std::vector<Status> answers;
    for (const CreatePod& create : creates) answers.push_back(Create(job, create));
    return answers;
  }
  // NotFound is success: it is gone.
  virtual Status Delete(const DeletePod& pod) = 0;
  virtual Status Annotate(const AnnotatePod& note) = 0;
  // All of them, each with its own answer, in that order; a platform may write them at once, so no
  // two of them may set the same key of a pod (but the instant of telling, where any will do).
  virtual std::vector<Status> AnnotateAll(std::span<const AnnotatePod> notes) {
    std::vector<Status> answers;
    for (const AnnotatePod& note : notes) answers.push_back(Annotate(note));
    return answers;
  }
  virtual Status WriteStatus(const TrainingJob& job, const TrainingJobStatus& status) = 0;
  virtual void Record(const TrainingJob& job, const Event& event) = 0;
};

}  // namespace crowdsurf::controller
