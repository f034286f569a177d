// Cluster: the port through which the reconciler sees and changes the platform.
//
// Two platforms stand behind it: a Kubernetes API server and this machine (local_cluster.h). Calls
// are made from one thread. Every failure is a Status that the reconciler turns into a refusal of
// the next snapshot; nothing is retried behind the port.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "operator/core/port/plan.h"
#include "operator/core/port/snapshot.h"

namespace crowdsurf::controller {

// Asked between requests, on any thread: true, begin no more of them. Empty: never.
using Enough = std::function<bool()>;

class Cluster {
 public:
  virtual ~Cluster() = default;

  // Everything about `job`. Contains every pod that Create made and that is not gone: a stale
  // cache must wait for its own writes (expectations). Error: NotFound when the job is gone.
  virtual StatusOr<JobSnapshot> Observe(const std::string& job) = 0;
  // The same, of what is known already, for notices: never waits, and asks the platform nothing.
  // What stands in the way of new pods is left out. Error: NotFound, also where too little is
  // known.
  virtual StatusOr<JobSnapshot> Glance(const std::string& job) { return Observe(job); }

  // Errors: ResourceExhausted (quota, disk), PermissionDenied, InvalidArgument (the template),
  // others. A pod of that name that is ours already is success.
  virtual Status Create(const TrainingJob& job, const CreatePod& create) = 0;
  // Each with its own answer, in that order; a platform may make them at once. Fewer answers than
  // there are creates, but one at least: it was `enough`, and the rest was not tried. So are the
  // next two.
  virtual std::vector<Status> CreateAll(const TrainingJob& job, std::span<const CreatePod> creates,
                                        const Enough& enough) {
    return OneByOne(creates, enough, [&](const CreatePod& create) { return Create(job, create); });
  }
  // NotFound is success: it is gone.
  virtual Status Delete(const DeletePod& pod) = 0;
  virtual std::vector<Status> DeleteAll(std::span<const DeletePod> pods, const Enough& enough) {
    return OneByOne(pods, enough, [&](const DeletePod& pod) { return Delete(pod); });
  }
  virtual Status Annotate(const AnnotatePod& note) = 0;
  // No two of them may set the same key of a pod (but the instant of telling, where any will do).
  virtual std::vector<Status> AnnotateAll(std::span<const AnnotatePod> notes,
                                          const Enough& enough) {
    return OneByOne(notes, enough, [&](const AnnotatePod& note) { return Annotate(note); });
  }
  // These are missing in the snapshot, and its status knows them: the next ones say of each that it
  // is there, or that it is gone (gone_pods). Asked for again until then. Must not wait.
  virtual void AskPods(const TrainingJob& /*job*/, std::span<const std::string> /*names*/) {}
  virtual Status WriteStatus(const TrainingJob& job, const TrainingJobStatus& status) = 0;
  virtual void Record(const TrainingJob& job, const Event& event) = 0;
  virtual void RecordAll(const TrainingJob& job, std::span<const Event> events) {
    for (const Event& event : events) Record(job, event);
  }
  // A turn of `job` ended with an exception: `what` is shown to its owner.
  virtual Status ShowError(const std::string& /*job*/, const std::string& /*what*/) {
    return absl::OkStatus();
  }

 private:
  template <class Item, class Ask>
  static std::vector<Status> OneByOne(std::span<const Item> items, const Enough& enough,
                                      const Ask& ask) {
    std::vector<Status> answers;
    for (const Item& item : items) {
      answers.push_back(ask(item));
      if (enough && enough()) break;
    }
    return answers;
  }
};

}  // namespace crowdsurf::controller
