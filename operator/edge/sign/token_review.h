// TokenReview: which pod an agent's bearer token belongs to, as the API server says.
//
// Agents show a projected token of audience "crowdsurf" (docs/kubernetes.md). The API server names
// the pod it was made for, and refuses it once that pod is gone. Any thread; blocks for one
// request. The caller bounds how often. Source: docs/pod-lifecycle.md 5.
#pragma once

#include <string>

#include "base/status.h"
#include "operator/core/observe/token_look.h"
#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::controller {

inline constexpr char kAgentAudience[] = "crowdsurf";

// Errors: Unauthenticated, the API server does not know it, or not as one for our audience;
// PermissionDenied, it is no pod's;
// Unavailable, the API server cannot be asked.
StatusOr<TokenPod> ReviewPodToken(KubeClient& client, const std::string& token);

}  // namespace crowdsurf::controller
