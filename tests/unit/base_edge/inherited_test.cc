// A process that is started with closed descriptors and ignored signals, as a child of the test.
#include "base/edge/inherited.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace crowdsurf {
namespace {

// What `body` returns in a child process.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool IsDevNull(int descriptor) {
  struct stat facts = {}, nothing = {};
  return fstat(descriptor, &facts) == 0 && stat("/dev/null", &nothing) == 0 &&
         facts.st_rdev == nothing.st_rdev && S_ISCHR(facts.st_mode);
}

TEST(InheritedTest, ClosedStandardDescriptorsAreNothingAfterwards) {
  for (int closed = 1; closed < 8; ++closed) {
    EXPECT_EQ(InChild([closed] {
                const int open_one = open("/", O_RDONLY);
                for (int fd = 0; fd < 3; ++fd) {
                  if ((closed >> fd & 1) == 1) {
                    close(fd);
                  } else {
                    dup2(open_one, fd);
                  }
                }
                TakeInherited();
                int wrong = 0;
                for (int fd = 0; fd < 3; ++fd) {
                  wrong += IsDevNull(fd) != ((closed >> fd & 1) == 1) ? 1 << fd : 0;
                }
                return wrong + (dup(0) < 3 ? 8 : 0);
              }),
              0)
        << closed;
  }
}

TEST(InheritedTest, AnIgnoredSignalIsSeenAndStays) {
  EXPECT_EQ(InChild([] {
              signal(SIGHUP, SIG_IGN);
              signal(SIGINT, SIG_DFL);
              TakeInherited();
              return IsIgnored(SIGHUP) && !IsIgnored(SIGINT) ? 0 : 1;
            }),
            0);
}

TEST(InheritedTest, ChildrenCanBeWaitedForWhateverWasInherited) {
  EXPECT_EQ(InChild([] {
              signal(SIGCHLD, SIG_IGN);
              TakeInherited();
              return InChild([] { return 0; });
            }),
            0);
}

}  // namespace
}  // namespace crowdsurf
