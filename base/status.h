// Status and StatusOr: how an expected failure travels.
//
// Purpose: one spelling for "this can fail" in every room. A Status message says what was tried, on
// what, and the limit that was met; it is logged once, where it is handled. Nothing here allocates
// on success. Any thread.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crowdsurf {

using absl::Status;
using absl::StatusOr;

}  // namespace crowdsurf

#define CROWDSURF_CONCAT_INNER(a, b) a##b
#define CROWDSURF_CONCAT(a, b) CROWDSURF_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` (a Status) is not OK.
#define RETURN_IF_ERROR(expression)                                             \
  do {                                                                          \
    if (::absl::Status crowdsurf_status = (expression); !crowdsurf_status.ok()) \
      return crowdsurf_status;                                                  \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): x = value of the StatusOr, or returns its status.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_INNER(CROWDSURF_CONCAT(crowdsurf_or_, __LINE__), target, expression)
// NOLINTBEGIN(bugprone-macro-parentheses): `target` and `temporary` declare, and a declared name
// has no parentheses
#define ASSIGN_OR_RETURN_INNER(temporary, target, expression) \
  auto temporary = (expression);                              \
  if (!temporary.ok()) return std::move(temporary).status();  \
  target = std::move(temporary).value()
// NOLINTEND(bugprone-macro-parentheses)
