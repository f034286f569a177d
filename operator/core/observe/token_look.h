// TokenLook: what a bearer token says of itself, before anybody is asked whether it is true.
//
// A pod's token is a JWT: who made it, for which audience, until when, of which pod. It is not
// verified here, since that is the API server's word; but what cannot be true even by its own words
// need not be asked about. Input is from anybody: kMaxToken bytes, no exception. Pure, any thread.
// Sources: RFC 7519, KEP-1205, docs/pod-lifecycle.md 5.
#pragma once

#include <string>

#include "base/status.h"
#include "base/time.h"

namespace crowdsurf::controller {

struct TokenPod {
  std::string space, name, uid;
  std::string issuer = {};  // as the token says; empty where a review names the pod
};

// Tokens of pods have some 1,200 bytes.
inline constexpr size_t kMaxToken = 16 << 10;

// The pod that it says it is of. Errors, as a review would end: Unauthenticated, it is no JWT, for
// another audience, or over; PermissionDenied, it is not of a pod. now: clocks may differ by five
// minutes.
StatusOr<TokenPod> LookAtToken(const std::string& token, const std::string& audience, WallTime now);

}  // namespace crowdsurf::controller
