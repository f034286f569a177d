#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace crowdsurf {

void CheckFailed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "CHECK failed at %s:%d: %s\n", file, line, what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace crowdsurf
