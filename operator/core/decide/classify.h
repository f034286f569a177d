// Classify: is a worker alive, told to go, done, taken by the platform, or broken by its own code?
//
// Disruptions and failures are never counted together: only failures touch backoffLimit. Pure, any
// thread. Source: docs/pod-lifecycle.md 4, docs/signals.md.
#pragma once

#include <string_view>

#include "operator/core/port/snapshot.h"

namespace crowdsurf::controller {

enum class Fate {
  kAlive,      // starting or training
  kMarked,     // its node is going away; it may still be training
  kSucceeded,  // the trainer ended well
  kDisrupted,  // the platform took it
  kFailed      // the user's code broke
};

struct Verdict {
  Fate fate = Fate::kAlive;
  std::string_view reason;  // of reasons.h; empty when alive
};

// What is known about the job while one of its pods is judged.
struct JudgeContext {
  WallTime now;
  SuccessCriterion success = SuccessCriterion::kTargetReached;
  bool target_met = false;
  Duration tolerated_unreachable;
  WallTime nodes_heard_since = WallTime();  // as in JobSnapshot
};

// node: the one that the pod names, nullptr when it names none yet or that one is no more.
Verdict Classify(const PodFacts& pod, const NodeFacts* node, const JudgeContext& context);

// When a node that is not Ready has been silent for long enough to be given up.
// Pre: node.not_ready_since.
WallTime GivenUpAt(const NodeFacts& node, WallTime nodes_heard_since, Duration tolerated);

// When a pod is judged at the latest whose trainer has ended and whose agent has not yet said why.
std::optional<WallTime> JudgedAt(const PodFacts& pod);

// Its trainer has ended well, and a container beside it keeps kubelet from ending the agent: the
// agent still answers, and is asked.
bool AwaitsWords(const PodFacts& pod);

// It has awaited words for long enough: it is deleted, so that its agent ends and leaves them.
bool MustSpeak(const PodFacts& pod, WallTime now);

// Its trainer had ended well so long before the pod was deleted that the deletion is no cause.
bool EndedByItself(const PodFacts& pod);

// True when nothing of the pod runs any more, as far as anybody knows.
bool HasEnded(const PodFacts& pod);

// What the first matching rule says about a failed pod; kCount when none matches.
FailureAction ActionFor(const std::vector<FailureRule>& rules, const PodFacts& pod);

}  // namespace crowdsurf::controller
