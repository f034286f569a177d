// What an API server's refusal means: a Status, and how long it asks to be left alone.
//
// Pure, any thread. The words are the server's own; a body that is no Status object is quoted, cut.
// Source: Kubernetes API conventions, "HTTP Status codes"; RFC 9110 10.2.3 (Retry-After).
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "base/time.h"

namespace crowdsurf::controller {

// `code`: not 2xx. NotFound 404, AlreadyExists and Aborted 409 (create, conflict), OutOfRange 410,
// InvalidArgument 400 and 422, Unauthenticated 401, PermissionDenied 403, and Unavailable all else,
// which may pass: 429 too, since a server that is busy refuses nobody for what was asked.
Status ApiError(int code, const std::string& body, const std::string& what);

// Seconds() of the answer's Retry-After, between kMinPause and kMaxPause. nullopt: it does not
// ask for a pause, so that the same request is not to be repeated. 429 asks for one without saying
// how long; what was asked has not begun. 5xx asks for one only with the header.
std::optional<Duration> PauseAskedFor(int code, const std::string& retry_after);

inline constexpr Duration kMinPause = Milliseconds(250);
// API servers ask for 1 s, under their dynamic limit for at most 32.
inline constexpr Duration kMaxPause = Seconds(30);

}  // namespace crowdsurf::controller
