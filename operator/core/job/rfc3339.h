// RFC 3339 instants in UTC as pure functions: "2026-11-21T10:22:58.250000Z"; and HTTP's dates.
//
// Kubernetes writes times so. Civil dates by Howard Hinnant's days_from_civil, so no C library
// time zone is asked. Years 1970 to 2262 (what WallTime holds). Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace crowdsurf::controller {

// Microseconds when there are any, else whole seconds (what Kubernetes writes).
std::string FormatInstant(WallTime time);

// Accepts an optional fraction and "Z" only; anything else, or a year out of range, is nullopt.
std::optional<WallTime> ParseInstant(std::string_view text);

// The date of HTTP that `text` begins with, "Mon, 01 Jan 2029 00:00:00 GMT" (RFC 9110, 5.6.7);
// nullopt: it begins with none. The day of the week is not checked.
std::optional<WallTime> ParseHttpDate(std::string_view text);

}  // namespace crowdsurf::controller
