#include "worker/edge/agent/supervisor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/edge/clock.h"
#include "base/edge/inherited.h"

namespace crowdsurf::worker {
namespace {

constexpr int kExitBadConfiguration = 2;
constexpr int kExitNoProgram = 127;  // as a shell says it

sigset_t Watched() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGCHLD}) sigaddset(&set, s);
  if (!IsIgnored(SIGINT)) sigaddset(&set, SIGINT);  // blocked it would arrive although ignored
  return set;
}

// Never returns in the child.
pid_t StartChild(const SupervisorOptions& options) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before the line above took hold.
  if (::getppid() != parent) ::_exit(1);
  // Empty, whatever we inherited: a child that starts with SIGTERM blocked cannot be asked to
  // leave.
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // This process has one thread, so the child may allocate before its exec.
  std::vector<char*> argv;
  for (const std::string& arg : options.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  std::fprintf(stderr, "cannot start %s: %s\n", argv[0], std::strerror(errno));
  ::_exit(kExitNoProgram);
}

// What the child's end was, 0..255, or 128 + signal.
int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Reaps everybody who has ended; true when `child` is among them.
bool Reap(pid_t child, int& code) {
  bool ended = false;
  int status = 0;
  // Signals merge: one SIGCHLD may stand for several ends.
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid != child) continue;
    ended = true;
    code = ExitCode(status);
  }
  return ended;
}

void AwaitEnd(const sigset_t& watched) {
  while (true) {
    const int signal = ::sigwaitinfo(&watched, nullptr);
    if (signal == SIGTERM || signal == SIGINT) return;
    int status = 0;
    while (::waitpid(-1, &status, WNOHANG) > 0) {
    }
  }
}

}  // namespace

bool CrashWindow::OnCrash(Time now) {
  crashes_.push_back(now);
  while (!crashes_.empty() && now - crashes_.front() > window_) crashes_.pop_front();
  return crashes_.size() < max_;
}

int Supervise(const SupervisorOptions& options, const Logger& log) {
  if (options.die_with_parent) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans come to us also when we are not PID 1
  const sigset_t watched = Watched();
  ::sigprocmask(SIG_BLOCK, &watched, nullptr);
  CrashWindow crashes(options.max_crashes, options.window);
  bool ending = false;
  uint64_t crashed = 0;
  pid_t child = StartChild(options);
  // Which end leads to what: docs/signals.md. Blocked signals wait to be taken, so none is missed.
  while (true) {
    if (child < 0) {
      log.Error("agent cannot be started", {{"error", std::strerror(errno)}});
      return 1;
    }
    const int signal = ::sigwaitinfo(&watched, nullptr);
    if (signal == SIGTERM || signal == SIGINT) {
      ending = true;
      ::kill(child, signal);
      continue;
    }
    int code = 0;
    if (signal != SIGCHLD || !Reap(child, code)) continue;
    if (code == 0 && options.wait_for_sigterm && !ending) {
      log.Info("agent has ended; waiting to be ended");
      AwaitEnd(watched);
      return 0;
    }
    if (code == 0 || code == kExitBadConfiguration) return code;
    if (ending) {
      log.Error("agent ended badly while leaving", {{"code", code}});
      return 1;
    }
    if (!crashes.OnCrash(SteadyNow())) {
      log.Error("agent crashed too often", {{"crashes", options.max_crashes}, {"code", code}});
      return 1;
    }
    log.Warning("agent crashed, restarting it", {{"code", code}});
    ::setenv(kCrashesVariable, std::to_string(++crashed).c_str(), 1);
    child = StartChild(options);
  }
}

}  // namespace crowdsurf::worker
