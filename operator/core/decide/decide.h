// Decide: the whole logic of the operator, one pure function of what is and what time it is.
//
// A chain of small policies, in an order that is itself the specification (decide.cc): account for
// what ended, see whether the job is over, send notices, remove pods, create pods, inform agents,
// write conditions. The Kubernetes operator and local mode run this same function. Level-based: it
// looks at the world, never at what happened last; calling it twice changes nothing. Bounded: at
// most `max_creates` creates a plan. Any thread. Source: docs/kubernetes.md and
// docs/pod-lifecycle.md.
#pragma once

#include <string>

#include "base/backoff.h"
#include "operator/core/port/plan.h"
#include "operator/core/port/snapshot.h"

namespace crowdsurf::controller {

struct DecideOptions {
  // Between two tries of one worker index whose trainer failed: batch/v1's 10 s to 10 min. Local
  // mode is impatient: half a second to ten.
  Backoff crash_backoff{Seconds(10), Seconds(600), 2.0, 0.2};
  // Between two tries of one worker index whose pods the platform took before they ran.
  Backoff disruption_backoff{Seconds(1), Seconds(60), 2.0, 0.2};
  // Between two creates after the API server refused one.
  Backoff refusal_backoff{Seconds(1), Seconds(60), 2.0, 0.2};
  // A worker that has been Ready so long has recovered: its row of failures is forgotten.
  Duration healthy_after = Seconds(120);
  // A pod told to leave gets SIGTERM this long before its node is gone: enough to end a round in
  // flight (leaving fits 10 s), little enough to train on while the notice runs.
  Duration notice_margin = Seconds(2);
  // A worker that is told to leave is replaced so much later. Its kubelet asks the API server for
  // the pod's claims before it writes the notice, and must not wait behind the replacement's
  // arrival. Source: docs/decisions/operator/018-replacement-after-the-notice.md. Zero where no
  // kubelet is in between.
  Duration notice_first;
  // How long workers may take to write the model and end once the target is met.
  Duration completion_grace = Seconds(60);
  // Of agents where spec.agent.image is silent; empty where agents have no image (local mode).
  std::string agent_image;
  // Of one plan, so that one big job does not starve the others (kube-controller-manager: 500).
  size_t max_creates = 500;
  // Of one job; what its spec asks for above that is not made, and its condition says so.
  int max_workers = 5000;
};

// What one agent left behind, added to what is known of its job.
void AddWords(Progress& told, const Progress& words);

Plan Decide(const JobSnapshot& snapshot, WallTime now, const DecideOptions& options = {});

}  // namespace crowdsurf::controller
