// Why a worker that was made does not train yet: the causes that its agent knows, with the reason
// and the words that people read.
//
// One table for conditions, events, `crowdsurf run` and its report. An agent says the name of its
// cause as `waitingFor` on GET /summary and in its termination message; whatever else it says there
// is no cause. What holds a pod before its agent runs is kubelet's to say (observe_pod.cc). Any
// thread. Source: docs/kubernetes.md.
#pragma once

#include <string_view>

#include "operator/core/job/reasons.h"

namespace crowdsurf::controller {

struct StartCause {
  std::string_view name;    // of the closed set that docs/agent.md has
  std::string_view reason;  // of reasons.h
  std::string_view words;   // after "worker X: "
};

inline constexpr StartCause kStartCauses[] = {
    {"signer", reason::kSignerNotReached,
     "its agent has no certificate: it does not reach the signer, port 9443 of the operator (DNS, "
     "network policies, a mesh)"},
    {"trainer", reason::kTrainerNotConnected,
     "no trainer has connected to its agent: does the program call the client?"},
    {"step", reason::kNoStep, "its trainer has connected and has made no step"},
    {"peers", reason::kPeersNotReached, "its agent has found none of the job's other workers"},
    {"state", reason::kStateNotFetched, "it has not got the job's model from its peers"},
    {"volume", reason::kVolumeNotReady, "its agent cannot use a volume"},
    // Nobody has heard it: before it has a certificate an agent may not listen.
    {"silent", reason::kNoStep,
     "it has made no step, and its agent was not heard: does it reach the signer, port 9443 of the "
     "operator?"}};

// nullptr: no such cause.
constexpr const StartCause* FindStartCause(std::string_view name) {
  for (const StartCause& cause : kStartCauses) {
    if (cause.name == name) return &cause;
  }
  return nullptr;
}

// What an agent may say, as `waitingFor`; the other causes are concluded.
constexpr bool IsWaitingFor(std::string_view name) {
  return FindStartCause(name) != nullptr && name != "step" && name != "silent";
}

}  // namespace crowdsurf::controller
