#include "cli/state_dir.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "operator/edge/atomic_file.h"

namespace crowdsurf::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kSucceededWord[] = "succeeded\n";
constexpr int kPatience_ms = 1500;  // for the reaper of a run that was killed a moment ago
constexpr int kLook_ms = 50;

}  // namespace

StatusOr<StateDir> StateDir::Open(const std::string& path) {
  std::error_code error;
  StateDir state;
  state.path_ = fs::absolute(path, error).lexically_normal();
  RETURN_IF_ERROR(controller::MakeFolders(state.path_));
  const std::string file = state.path_ + "/lock";
  state.lock_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (state.lock_ < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot open ", file, ": ", std::strerror(errno)));
  }
  for (int waited = 0; flock(state.lock_, LOCK_EX | LOCK_NB) != 0; waited += kLook_ms) {
    if (waited >= kPatience_ms) {
      std::string pid = controller::ReadFile(file, 32);
      while (!pid.empty() && pid.back() == '\n') pid.pop_back();
      return absl::FailedPreconditionError(
          absl::StrCat("the state directory ", state.path_, " is in use by another run (pid ",
                       pid.empty() ? "unknown" : pid, "); name another with --state-dir"));
    }
    poll(nullptr, 0, kLook_ms);
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(state.lock_, 0) != 0 ||
      pwrite(state.lock_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot write ", file, ": ", std::strerror(errno)));
  }
  return state;
}

StateDir::StateDir(StateDir&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

StateDir::~StateDir() {
  if (lock_ >= 0) close(lock_);
}

StatusOr<bool> StateDir::Prepare(bool fresh) {
  std::error_code error;
  fs::remove_all(path_ + "/workers", error);
  const bool done = controller::ReadFile(path_ + "/outcome", 64) == kSucceededWord;
  fs::remove(path_ + "/outcome", error);
  if (done || fresh) fs::remove_all(checkpoint(), error);
  RETURN_IF_ERROR(controller::MakeFolders(path_ + "/workers"));
  RETURN_IF_ERROR(controller::MakeFolders(checkpoint()));
  return !fs::is_empty(checkpoint(), error);
}

void StateDir::Remember(bool succeeded) {
  // Best effort: without it the next run resumes, which is the safe side.
  const Status written =
      controller::WriteFile(path_ + "/outcome", succeeded ? kSucceededWord : "open\n");
  if (!written.ok()) unlink((path_ + "/outcome").c_str());
}

std::string DefaultStateDir(const std::string& job) {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return std::string(state) + "/crowdsurf/" + job;
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.local/state/crowdsurf/" + job;
  return "crowdsurf-state/" + job;
}

}  // namespace crowdsurf::cli
