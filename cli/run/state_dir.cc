#include "cli/run/state_dir.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/edge/files.h"
#include "cli/run/worker_name.h"

namespace crowdsurf::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kSucceededWord[] = "succeeded\n";
constexpr int kPatience_ms = 1500;  // for the reaper of a run that was killed a moment ago
constexpr int kLook_ms = 50;

// Two logs of 64 KiB and a dozen small files of a page each, with room to spare.
constexpr uint64_t kWorkerBytes = 256 << 10;
constexpr uint64_t kWorkerFiles = 20;
// Report, page, lock, outcome and the folders; the page of a long run has some 300 KiB.
constexpr uint64_t kRunBytes = 1 << 20;
constexpr uint64_t kRunFiles = 20;

constexpr char kElsewhere[] = "; name another with --state-dir";

std::string Kibibytes(uint64_t bytes) { return absl::StrCat(bytes >> 10, " KiB"); }

Status Unusable(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(error), kElsewhere);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  return absl::PermissionDeniedError(text);
}

}  // namespace

Status CheckSpace(const std::string& path, int workers) {
  std::error_code error;
  fs::path there = fs::absolute(path, error).lexically_normal();
  // Its file system is that of the nearest folder that is there.
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  struct statvfs disk = {};
  if (statvfs(there.c_str(), &disk) != 0) return absl::OkStatus();  // opening it will say why
  const auto many = static_cast<uint64_t>(workers);
  // What is kept back for root is there for root.
  const bool root = geteuid() == 0;
  const uint64_t bytes = (root ? disk.f_bfree : disk.f_bavail) * disk.f_frsize;
  const uint64_t needed = kRunBytes + many * kWorkerBytes;
  const std::string who = absl::StrCat("the state directory ", path, " has room for ");
  const std::string wants =
      absl::StrCat("; ", workers, workers == 1 ? " worker needs " : " workers need ");
  if (disk.f_blocks > 0 && bytes < needed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no space: ", who, Kibibytes(bytes), wants, Kibibytes(needed),
                     " for logs and report, and the model more", kElsewhere));
  }
  const uint64_t files = root ? disk.f_ffree : disk.f_favail;
  // Some file systems make inodes as they need them and say zero.
  if (disk.f_files > 0 && files < kRunFiles + many * kWorkerFiles) {
    return absl::ResourceExhaustedError(absl::StrCat("no space: ", who, files, " files (inodes)",
                                                     wants, kRunFiles + many * kWorkerFiles,
                                                     kElsewhere));
  }
  return absl::OkStatus();
}

StatusOr<StateDir> StateDir::Open(const std::string& path) {
  std::error_code error;
  StateDir state;
  state.path_ = fs::absolute(path, error).lexically_normal();
  fs::create_directories(state.path_, error);
  if (error) return Unusable("cannot make the state directory " + state.path_, error.value());
  const std::string file = state.path_ + "/lock";
  state.lock_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (state.lock_ < 0) return Unusable("cannot write " + file, errno);
  for (int waited = 0; flock(state.lock_, LOCK_EX | LOCK_NB) != 0; waited += kLook_ms) {
    // The reaper of a run that was killed holds the lock until its workers are gone.
    if (waited >= kPatience_ms) {
      std::string pid = ReadFile(file, 32).value_or("");
      while (!pid.empty() && pid.back() == '\n') pid.pop_back();
      return absl::FailedPreconditionError(
          absl::StrCat("the state directory ", state.path_, " is in use by another run (pid ",
                       pid.empty() ? "unknown" : pid, "); name another with --state-dir"));
    }
    poll(nullptr, 0, kLook_ms);
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  // Written into the locked file itself: whose pid it holds is never in doubt.
  if (ftruncate(state.lock_, 0) != 0 ||
      pwrite(state.lock_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Unusable("cannot write " + file, errno);
  }
  return state;
}

bool StateDir::InUse(const std::string& path) {
  const int lock = open((path + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return false;
  // Shared, and for a moment: a run that starts meanwhile tries again.
  const bool held = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(lock);
  return held;
}

StateDir::StateDir(StateDir&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

StateDir::~StateDir() {
  if (lock_ >= 0) close(lock_);
}

StatusOr<bool> StateDir::Prepare(OldCheckpoint old) {
  std::error_code error;
  fs::remove_all(path_ + "/workers", error);
  // Read before it is removed: this run is unfinished until it says otherwise.
  const bool done = ReadFile(path_ + "/outcome", 64).value_or("") == kSucceededWord;
  fs::remove(path_ + "/outcome", error);
  if (done || old == OldCheckpoint::kClear) fs::remove_all(checkpoint(), error);
  RETURN_IF_ERROR(MakeFolders(path_ + "/workers"));
  RETURN_IF_ERROR(MakeFolders(checkpoint()));
  return !fs::is_empty(checkpoint(), error);
}

void StateDir::Remember(RunEnd end) {
  // Best effort: without it the next run resumes, which is the safe side.
  const char* word = end == RunEnd::kDone ? kSucceededWord : "open\n";
  const Status written = WriteFileAtomically(path_ + "/outcome", word);
  if (!written.ok()) unlink((path_ + "/outcome").c_str());
}

std::string DefaultStateDir(const std::string& job) {
  // XDG Base Directory Specification: state that outlives a restart, and is no configuration.
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return std::string(state) + "/crowdsurf/" + job;
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.local/state/crowdsurf/" + job;
  return "crowdsurf-state/" + job;
}

std::vector<std::string> LocalJobs() {
  std::vector<std::string> jobs;
  std::error_code error;
  const fs::path parent = fs::path(DefaultStateDir("job")).parent_path();
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    if (jobs.size() < kMaxLocalJobs && fs::is_directory(at->path() / "workers", unreadable)) {
      jobs.push_back(at->path().filename().string());
    }
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

Status NoLocalJob(const std::string& job) {
  const std::vector<std::string> jobs = LocalJobs();
  return absl::NotFoundError(absl::StrCat("no job ", job, " has run on this machine",
                                          jobs.empty() ? "" : " (there are " + Listed(jobs) + ")"));
}

}  // namespace crowdsurf::cli
