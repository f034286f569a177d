// Supervisor: the agent's PID 1. Starts the agent as its child and restarts it at once when it
// crashes.
//
// Purpose: a kubelet backs off for minutes after a few crashes, training must not
// (docs/pod-lifecycle.md 2). Called by worker_main before anything else: single-threaded, no gRPC.
// Forwards SIGTERM and SIGINT, reaps orphans, and the child dies with it (PR_SET_PDEATHSIG), so
// that nothing is left over. The tenth crash in a minute ends it: the worker is then replaced.
// Linux only.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/time.h"

namespace crowdsurf::worker {

// In the child's environment: how many agents of this worker have crashed before it.
inline constexpr char kCrashesVariable[] = "CROWDSURF_AGENT_CRASHES";

// Decides whether a crash is one too many: pure, so that it can be tested without processes.
class CrashWindow {
 public:
  CrashWindow(size_t most, Duration window) : max_(most), window_(window) {}
  // True: restart. False: this is crash number `most` within `window`.
  bool OnCrash(Time now);

 private:
  const size_t max_;
  const Duration window_;
  std::deque<Time> crashes_;  // at most max_
};

struct SupervisorOptions {
  std::vector<std::string> argv;  // of the child; argv[0] is the path of the program
  size_t max_crashes = 10;
  Duration window = Seconds(60);
  bool die_with_parent = false;  // SIGKILL when our parent ends (local mode)
  // After the child has ended with 0, wait for SIGTERM: a kubelet starts a sidecar that ends
  // again, and a second agent would join the job that the first one has left.
  bool wait_for_sigterm = false;
};

// Runs until the child ends for good. Returns its exit code when that is 0 (left, or target met) or
// 2 (bad configuration: starting again would not help), 1 after one crash too many or when the
// child ended badly after a SIGTERM.
int Supervise(const SupervisorOptions& options, const Logger& log);

}  // namespace crowdsurf::worker
