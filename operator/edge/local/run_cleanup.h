// What a local run leaves on the machine, and how it is removed after any end.
//
// Every process of a run carries CROWDSURF_RUN=<id> in its environment and every shared file lies
// in one directory of the run on tmpfs, so both can be found again by anybody: by the run itself,
// by its reaper (a tiny process that waits for the run to die, kill -9 included), and by the next
// start, which sweeps what a machine crash left. Single thread. Bounded by what is found.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "base/status.h"

namespace crowdsurf::controller {

inline constexpr char kRunVariable[] = "CROWDSURF_RUN";
inline constexpr char kWorkerVariable[] = "CROWDSURF_WORKER";

// SIGKILLs every process whose environment names this run (and worker, unless empty), our own
// excepted, until two looks find none. Returns how many it killed.
int KillRunProcesses(const std::string& run, const std::string& worker = {});

// From now on this process is the parent of every descendant whose own parent has ended, so that
// one that hides its environment is found, too. It must reap them (ReapOrphans).
void AdoptOrphans();
// Reaps adopted processes that have ended. `ours`: children that somebody else of this process
// waits for.
void ReapOrphans(std::span<const pid_t> ours);
// SIGKILLs every child but `ours`, until none is left. Returns how many signals it sent.
int KillOrphans(std::span<const pid_t> ours);

// Removes directories of runs that nobody holds any more below `parent` ("/dev/shm"), and kills
// what is left of them. Returns the number of runs swept.
int SweepStaleRuns(const std::string& parent);

// A directory that a run holds: locked, removed at the end. Its name is crowdsurf-<run>.
class RunDirectory {
 public:
  // Errors: ResourceExhausted or PermissionDenied in words.
  static StatusOr<RunDirectory> Create(const std::string& parent, const std::string& run);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();
  const std::string& path() const { return path_; }

 private:
  RunDirectory() = default;
  std::string path_;
  int lock_ = -1;
};

// A child that outlives kill -9 of this process: then it kills the run's processes and removes
// `directory`. Start it before any thread. Destroying the Reaper dismisses the child: the run has
// cleaned up by itself.
class Reaper {
 public:
  static StatusOr<Reaper> Start(const std::string& run, const std::string& directory);
  Reaper(Reaper&& other) noexcept;
  Reaper& operator=(Reaper&&) = delete;
  ~Reaper();
  pid_t pid() const { return pid_; }

 private:
  Reaper() = default;
  pid_t pid_ = -1;
  int line_ = -1;  // the child waits for this to close
};

}  // namespace crowdsurf::controller
