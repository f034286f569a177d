// The supervisor over real processes, shell scripts in the agent's place. Exits and restarts are
// those of docs/signals.md.
#include "worker/edge/agent/supervisor.h"

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/worker_edge/state/scratch_folder.h"

namespace crowdsurf::worker {
namespace {

// Runs a supervisor of `/bin/sh -c script` in a process of its own. The script writes to fd 3,
// which is read here: tests wait for words, not for time.
class Supervised {
 public:
  explicit Supervised(const std::string& script, bool wait_for_sigterm = false) {
    int ends[2], input[2];
    if (pipe(ends) != 0 || pipe(input) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      close(input[1]);
      dup2(input[0], 0);
      dup2(ends[1], 3);
      SupervisorOptions options;
      options.argv = {"/bin/sh", "-c", script};
      options.wait_for_sigterm = wait_for_sigterm;
      _exit(Supervise(options, Logger()));
    }
    close(ends[1]);
    close(input[0]);
    out_ = ends[0];
    in_ = input[1];
  }
  ~Supervised() {
    if (!waited_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
    close(in_);
  }
  // The next line of the script's output, "" at its end.
  std::string Line() {
    std::string line;
    for (char c; read(out_, &c, 1) == 1 && c != '\n';) line.push_back(c);
    return line;
  }
  void Signal(int signal) { kill(pid_, signal); }
  bool Runs() { return waitpid(pid_, nullptr, WNOHANG) == 0; }
  // Until the supervisor has reaped its child.
  void AwaitNoChild() {
    const std::string path = absl::StrCat("/proc/", pid_, "/task/", pid_, "/children");
    for (std::string text = "?"; !text.empty(); sched_yield()) {
      std::ifstream file(path);
      text.clear();
      std::getline(file, text);
    }
  }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    waited_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1, in_ = -1;
  bool waited_ = false;
};

// pod-lifecycle 2.4
TEST(CrashWindowTest, TheTenthCrashInAMinuteIsOneTooMany) {
  CrashWindow window(10, Seconds(60));
  Time now = Time::FromNanoseconds(1'000'000'000);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(window.OnCrash(now + Seconds(i)));
  EXPECT_FALSE(window.OnCrash(now + Seconds(59)));
  CrashWindow slow(10, Seconds(60));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(slow.OnCrash(now + Seconds(7.0 * i))) << i;
}

TEST(SupervisorTest, ACrashedAgentIsRestartedUntilItLeaves) {  // pod-lifecycle 2.3
  ScratchFolder folder;
  Supervised s("echo start >&3; if [ -e " + (folder / "2") + " ]; then exit 0; fi; if [ -e " +
               (folder / "1") + " ]; then touch " + (folder / "2") + "; kill -9 $$; fi; touch " +
               (folder / "1") + "; exit 3");
  EXPECT_EQ(s.Wait(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(s.Line(), "start");
  EXPECT_EQ(s.Line(), "");
}

TEST(SupervisorTest, AfterTenCrashesItGivesUp) {
  Supervised s("echo start >&3; exit 3");
  EXPECT_EQ(s.Wait(), 1);
  int starts = 0;
  while (s.Line() == "start") ++starts;
  EXPECT_EQ(starts, 10);
}

TEST(SupervisorTest, BadConfigurationIsNotTriedAgain) {
  Supervised s("echo start >&3; exit 2");
  EXPECT_EQ(s.Wait(), 2);
  EXPECT_EQ(s.Line(), "start");
  EXPECT_EQ(s.Line(), "");
}

// Says "ready" and reads its input, which never comes, until SIGTERM runs `on_term`.
std::string UntilSigterm(const char* on_term) {
  return absl::StrCat("trap '", on_term, "' TERM; echo ready >&3; read x");
}

TEST(SupervisorTest, SigtermIsForwardedAndTheAgentsEndIsOurs) {
  Supervised s(UntilSigterm("echo left >&3; exit 0"));
  ASSERT_EQ(s.Line(), "ready");
  s.Signal(SIGTERM);
  EXPECT_EQ(s.Wait(), 0);
  EXPECT_EQ(s.Line(), "left");
}

TEST(SupervisorTest, AsASidecarItStaysAfterTheAgentHasLeftUntilItIsToldToEnd) {
  Supervised s("echo start >&3; exit 0", /*wait_for_sigterm=*/true);
  EXPECT_EQ(s.Line(), "start");
  s.AwaitNoChild();
  EXPECT_TRUE(s.Runs());
  s.Signal(SIGTERM);
  EXPECT_EQ(s.Wait(), 0);
}

TEST(SupervisorTest, AnAgentThatEndsBadlyWhileLeavingIsNotRestarted) {
  Supervised s(UntilSigterm("exit 9"));
  ASSERT_EQ(s.Line(), "ready");
  s.Signal(SIGTERM);
  EXPECT_EQ(s.Wait(), 1);
  EXPECT_EQ(s.Line(), "");
}

TEST(SupervisorTest, TheAgentDiesWithItsSupervisor) {
  // The write end of fd 3 is held by the child alone once the supervisor is dead: its end is our
  // proof.
  Supervised s("echo ready >&3; read x");
  ASSERT_EQ(s.Line(), "ready");
  s.Signal(SIGKILL);
  EXPECT_EQ(s.Wait(), -SIGKILL);
  EXPECT_EQ(s.Line(), "") << "end of file: nobody is left";
}

TEST(SupervisorTest, OrphansAreReapedAndTheirEndIsNotTheAgents) {
  // A process whose parent has ended is the supervisor's; once killed it must not stay a zombie.
  Supervised s(
      "p=$(sh -c 'tail -f /dev/null >/dev/null 3>&- & echo $!'); kill $p; i=0; "
      "while [ -d /proc/$p ] && [ $i -lt 300000 ]; do i=$((i+1)); done; "
      "[ -d /proc/$p ] && echo zombie >&3 || echo reaped >&3; exit 0");
  EXPECT_EQ(s.Line(), "reaped");
  EXPECT_EQ(s.Wait(), 0);
}

TEST(SupervisorTest, AProgramThatIsNotThereIsACrash) {
  const pid_t pid = fork();
  if (pid == 0) {
    SupervisorOptions options;
    options.argv = {"/nowhere/crowdsurf-worker"};
    if (freopen("/dev/null", "w", stderr) == nullptr) _exit(99);
    _exit(Supervise(options, Logger()));
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace crowdsurf::worker
