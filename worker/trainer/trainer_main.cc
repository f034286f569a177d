// crowdsurf-trainer: the built-in trainer. Wiring only; see docs/trainer.md.
//
// The program is built twice: portable, and for x86-64-v3 (AVX2, FMA), which computes 2.4 times as
// fast. The portable one starts the other in its place (same pid, same arguments) where the
// processor can run it and it lies beside it.
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/edge/inherited.h"
#include "worker/trainer/commands.h"

namespace {

volatile int interrupt_signal = 0;
volatile bool training = false;

// Before training there is nothing to end in order, and whatever waits (for text on a slow disk,
// for an agent that is dead) is not asked to notice. Not the default action instead of a handler:
// the kernel does not apply that to PID 1 of a container.
void OnSignal(int signal) {
  if (!training) _exit(128 + signal);
  interrupt_signal = signal;
}

#if defined(__x86_64__) && !defined(CROWDSURF_TRAINER_V3)
void BecomeFaster(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--portable") return;
  }
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2")) {
    return;
  }
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return;
  const std::string faster = std::string(self, static_cast<size_t>(length)) + "-v3";
  execv(faster.c_str(), argv);  // returns only where there is none: then this one does the work
}
#else
void BecomeFaster(int, char**) {}
#endif

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int main(int argc, char** argv) {
  crowdsurf::TakeInherited();
  BecomeFaster(argc, argv);
  const auto options = crowdsurf::trainer::ParseOptions(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "crowdsurf-trainer: bad options\n%s\n",
                 std::string(options.status().message()).c_str());
    return 2;
  }
  if (!options->has_value()) return 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second signal ends at once
  if (!crowdsurf::IsIgnored(SIGINT)) sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return crowdsurf::trainer::RunCommand(**options,
                                        {.dir = Environment("CROWDSURF_DIR"),
                                         .job = Environment("CROWDSURF_JOB"),
                                         .worker = Environment("CROWDSURF_WORKER"),
                                         .on_start = [] { training = true; }},
                                        &interrupt_signal);
}
