// Process: a child in a process group of its own that dies with us, and the end of what it prints.
//
// The child's stdout and stderr are one pipe that the owner must drain (Drain) and of which the
// first 16 and the last 64 KiB are kept. Linux only: pidfd to wait on, PR_SET_PDEATHSIG so that
// kill -9 of this process takes the child along; that signal is bound to the *thread* that forks,
// so one thread (the main thread) owns all processes and outlives them. Not copyable.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace crowdsurf::controller {

inline constexpr size_t kKeptOutput = size_t{64} * 1024;  // of each process, its end
inline constexpr size_t kKeptHead = size_t{16} * 1024;    // and its beginning: how it was started

struct ProcessOptions {
  std::vector<std::string> argv;         // argv[0] is looked up in PATH of `environment`
  std::vector<std::string> environment;  // NAME=value; nothing else is inherited
  std::string directory;                 // working directory; empty: ours
};

class Process {
 public:
  // Errors: NotFound or PermissionDenied when the program cannot be run (in words, with PATH),
  // ResourceExhausted when the system has no process, pipe or memory left.
  static StatusOr<Process> Start(const ProcessOptions& options);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();  // SIGKILLs what is left of the group and reaps

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }    // readable once it has ended; -1 after Reap
  int output() const { return output_; }  // readable when it printed; -1 when closed

  void Signal(int signal) const;       // the process alone
  void SignalGroup(int signal) const;  // it and what it started

  // Reads what is there, without waiting.
  void Drain();
  // True once it has ended; then exit_code is set: the code, or 128 + signal.
  bool Reap();
  const std::optional<int>& exit_code() const { return exit_code_; }
  const std::string& kept_output() const { return kept_; }
  const std::string& head() const { return head_; }  // the first that it printed
  uint64_t printed() const { return printed_; }      // bytes drained in all; the last are kept

 private:
  Process() = default;
  void Close();

  pid_t pid_ = -1;
  int pidfd_ = -1;
  int output_ = -1;
  std::optional<int> exit_code_;
  std::string kept_, head_;
  uint64_t printed_ = 0;
};

// The value of `name` in a NAME=value list, empty when absent.
std::string EnvironmentValue(const std::vector<std::string>& environment, std::string_view name);

}  // namespace crowdsurf::controller
