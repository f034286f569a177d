// WorkerName: JOB-INDEX-INCARNATION taken apart, and which of a job's workers a user means.
//
// An index is a seat of the job. Its workers follow each other with higher incarnations, and the
// last one is the newest. Pure; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace crowdsurf::cli {

struct WorkerName {
  std::string job;
  int index = 0;
  int incarnation = 0;

  std::string text() const;
  auto operator<=>(const WorkerName&) const = default;
};

// From its end: a job's name may have hyphens and digits. nullopt: it is no such name.
std::optional<WorkerName> ParseWorkerName(std::string_view text);

enum class Which : uint8_t { kNewest, kPrevious };

// Of the workers `there` of one job those that are meant, by index: `wanted` is a worker's name, an
// index, or empty for all indices. kPrevious: the predecessor of each. NotFound: there is none; it
// says which there are.
StatusOr<std::vector<WorkerName>> ChooseWorkers(std::vector<WorkerName> there,
                                                const std::string& wanted, Which which);

// "a, b and 12 more", at most `most` of them.
std::string Listed(const std::vector<std::string>& names, size_t most = 12);

}  // namespace crowdsurf::cli
