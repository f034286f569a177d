#include "base/edge/inherited.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace crowdsurf {

void TakeInherited() {
  for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; ++standard) {
    if (fcntl(standard, F_GETFD) >= 0) continue;
    // The lowest that is free: this one, since those below are open by now.
    const int nothing = open("/dev/null", standard == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    if (nothing > STDERR_FILENO) close(nothing);
  }
  signal(SIGCHLD, SIG_DFL);
}

bool IsIgnored(int signal) {
  struct sigaction present = {};
  return sigaction(signal, nullptr, &present) == 0 && present.sa_handler == SIG_IGN;
}

}  // namespace crowdsurf
