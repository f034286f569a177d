// A process that keeps its memory private, as a child of the test.
#include "base/edge/private_memory.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace crowdsurf {
namespace {

[[noreturn]] void EndAsItsLimitsSay() {
  KeepMemoryPrivate();
  rlimit core{1, 1};
  getrlimit(RLIMIT_CORE, &core);
  const bool none = core.rlim_cur == 0 && core.rlim_max == 0;
  _exit(none ? prctl(PR_GET_DUMPABLE) : 2);
}

[[noreturn]] void EndAsItReadsItself() {
  constexpr uid_t kAnyUser = 65'534;
  if (getuid() == 0 && setuid(kAnyUser) != 0) _exit(2);
  KeepMemoryPrivate();
  std::error_code error;
  const std::filesystem::directory_iterator open_files("/proc/self/fd", error);
  std::ifstream stat("/proc/self/stat");
  _exit(!error && stat.good() ? 0 : 1);
}

TEST(PrivateMemoryTest, NobodyTracesItAndItLeavesNoCore) {
  EXPECT_EXIT(EndAsItsLimitsSay(), testing::ExitedWithCode(0), "");
}

// Its metrics page reads them (metrics_page.h).
TEST(PrivateMemoryTest, ItStillReadsItsOwnFiguresAsAnyUser) {
  EXPECT_EXIT(EndAsItReadsItself(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace crowdsurf
