#include "base/edge/private_memory.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/check.h"

namespace crowdsurf {

void KeepMemoryPrivate() {
  const rlimit none{0, 0};
  // Neither needs a right: less is always allowed.
  CHECK_EQ(setrlimit(RLIMIT_CORE, &none), 0);
  CHECK_EQ(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
}

}  // namespace crowdsurf
