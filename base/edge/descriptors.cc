#include "base/edge/descriptors.h"

#include <sys/resource.h>

#include <cstdint>

namespace crowdsurf {
namespace {

constexpr size_t kUnknown = 1024;  // what most systems begin with

size_t Size(rlim_t limit) { return limit > SIZE_MAX ? SIZE_MAX : static_cast<size_t>(limit); }

}  // namespace

size_t RaiseDescriptorLimit() {
  rlimit now{};
  if (getrlimit(RLIMIT_NOFILE, &now) != 0) return kUnknown;
  const rlimit more{now.rlim_max, now.rlim_max};
  (void)setrlimit(RLIMIT_NOFILE, &more);
  return DescriptorLimit();
}

size_t DescriptorLimit() {
  rlimit now{};
  return getrlimit(RLIMIT_NOFILE, &now) == 0 ? Size(now.rlim_cur) : kUnknown;
}

}  // namespace crowdsurf
