// NoEscape: an exception becomes an error, so that it ends what was tried and not the process.
//
// Around whatever a thread of the operator does with input of others: JSON, sockets, user texts.
// The caller says what counts it. Any thread.
#pragma once

#include <exception>
#include <utility>

#include "base/metrics.h"
#include "base/status.h"

namespace crowdsurf::controller {

// What `work` returns (a Status or a StatusOr), or Internal with the exception's words.
template <class Work>
auto NoEscape(Counter* counted, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::exception& thrown) {
    if (counted != nullptr) counted->Add();
    return absl::InternalError(absl::StrCat("an exception: ", thrown.what()));
  }
}

}  // namespace crowdsurf::controller
