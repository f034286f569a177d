// StateDir: the folder of a run, held by one run at a time.
//
// Holds workers/ (logs), checkpoint/, the report. What an earlier run left is kept or cleared by
// what it was: a run that succeeded is done, so the next one starts anew; one that was interrupted
// is resumed from its checkpoint. Single thread; the lock is released by the kernel at any end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace crowdsurf::cli {

// What becomes of the checkpoint of an interrupted run. That of a run that succeeded always goes.
enum class OldCheckpoint : uint8_t { kResume, kClear };
// How a run ended, for the next one.
enum class RunEnd : uint8_t { kDone, kUnfinished };

class StateDir {
 public:
  // Makes and locks `path`; a folder that is there keeps its mode, it may be somebody else's and
  // open to us. Errors: FailedPrecondition when another run holds it (names its pid); others in
  // words (no space, no permission).
  static StatusOr<StateDir> Open(const std::string& path);
  StateDir(StateDir&& other) noexcept;
  StateDir& operator=(StateDir&&) = delete;
  ~StateDir();

  // A run holds it now, or its reaper still does. Takes nothing.
  static bool InUse(const std::string& path);

  const std::string& path() const { return path_; }
  std::string checkpoint() const { return path_ + "/checkpoint"; }

  // Clears what must not be seen by this run. Returns true when there is a checkpoint to resume
  // from.
  StatusOr<bool> Prepare(OldCheckpoint old);
  void Remember(RunEnd end);

 private:
  StateDir() = default;
  std::string path_;
  int lock_ = -1;
};

// Whether the file system of `path`, which need not be there yet, has room for what a run of so
// many workers writes whatever its model: keys, logs, the report. ResourceExhausted names the
// folder, what is free and what is needed. A file system that does not say how full it is has room.
Status CheckSpace(const std::string& path, int workers);

// Where a run keeps its state when the user does not say: $XDG_STATE_HOME or ~/.local/state.
std::string DefaultStateDir(const std::string& job);
// Jobs that have a state directory there, sorted; at most kMaxLocalJobs of them.
std::vector<std::string> LocalJobs();
inline constexpr size_t kMaxLocalJobs = 1000;
// NotFound: no run of that job is known at the default place; says which jobs are.
Status NoLocalJob(const std::string& job);

}  // namespace crowdsurf::cli
