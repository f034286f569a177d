#include "base/edge/processors.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/edge/files.h"

namespace crowdsurf {
namespace {

// std::thread::hardware_concurrency counts all that are online (glibc 2.36).
size_t Schedulable() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<size_t>(CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());  // more than a cpu_set_t can say
}

}  // namespace

std::optional<size_t> ProcessorsOfLimit(std::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(std::string(text), ' ');
  uint64_t quota = 0, period = 0;  // microseconds
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &quota) ||
      !absl::SimpleAtoi(words[1], &period) || quota == 0 || period == 0)
    return std::nullopt;  // "max 100000": none
  return static_cast<size_t>(quota / period + (quota % period == 0 ? 0 : 1));
}

size_t ProcessorsToUse(const std::filesystem::path& limit_file) {
  constexpr size_t kMostBytes = 64;  // two numbers
  const size_t here = Schedulable();
  const auto text = ReadFile(limit_file, kMostBytes);
  const auto limit = text.ok() ? ProcessorsOfLimit(*text) : std::nullopt;
  return std::min(here, limit.value_or(here));
}

}  // namespace crowdsurf
