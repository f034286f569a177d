#include "operator/edge/local/run_cleanup.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

namespace crowdsurf::controller {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "crowdsurf-";
constexpr char kLockName[] = "lock";
constexpr char kFreshLockName[] = "lock.new";
constexpr int kMaxLooks = 200;  // 10 ms apart: a process that survives 2 s of SIGKILL is stuck
constexpr int kLookInterval_ms = 10;  // in the kernel, and no user program can help

std::string Environment(const fs::path& process) {
  std::ifstream file(process / "environ", std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A whole entry: a variable or a value that only ends or begins so is another's.
bool Names(const std::string& environment, const char* variable, const std::string& value) {
  const std::string entry = std::string(variable) + "=" + value + '\0';
  const size_t at = environment.find(entry);
  return at != std::string::npos && (at == 0 || environment[at - 1] == '\0');
}

// Every process of this machine, with its folder in /proc.
std::vector<std::pair<pid_t, fs::path>> Processes() {
  std::vector<std::pair<pid_t, fs::path>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data(), end, pid).ptr == end) found.emplace_back(pid, entry.path());
  }
  return found;
}

// Zombies have an empty environment, so they are not found; their parent reaps them.
std::vector<pid_t> Find(const std::string& run, const std::string& worker) {
  std::vector<pid_t> found;
  for (const auto& [pid, process] : Processes()) {
    // Never ourselves, also when a run is started by the trainer of another.
    if (pid == getpid() || pid == getppid()) continue;
    const std::string environment = Environment(process);
    if (!Names(environment, kRunVariable, run)) continue;
    if (!worker.empty() && !Names(environment, kWorkerVariable, worker)) continue;
    found.push_back(pid);
  }
  return found;
}

// The parent of a process; 0: it has ended.
pid_t ParentOf(const fs::path& process) {
  std::ifstream file(process / "stat", std::ios::binary);
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  // "pid (name) state parent": the name may hold anything, so from its last bracket on.
  const size_t end = stat.rfind(") ");
  constexpr size_t kToParent = 4;  // past the bracket, a space, the state and a space
  pid_t parent = 0;
  if (end == std::string::npos || stat.size() < end + kToParent) return 0;
  std::from_chars(stat.data() + end + kToParent, stat.data() + stat.size(), parent);
  return parent;
}

// The children of this process but `ours`. The kernel gives it those whose parent has ended
// (AdoptOrphans), whatever they have done to their environment, session or group.
std::vector<pid_t> Adopted(std::span<const pid_t> ours) {
  std::vector<pid_t> found;
  for (const auto& [pid, process] : Processes()) {
    if (ParentOf(process) != getpid()) continue;
    if (std::find(ours.begin(), ours.end(), pid) == ours.end()) found.push_back(pid);
  }
  return found;
}

void Pause() { poll(nullptr, 0, kLookInterval_ms); }

[[noreturn]] void ReapWhenAlone(int line, const std::string& run, const std::string& directory) {
  setsid();  // Ctrl-C in the terminal is not for us
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
  prctl(PR_SET_NAME, "crowdsurf-reap");
  // Never over `line`, whatever number it has.
  const int nothing = open("/dev/null", O_RDWR);
  for (const int standard : {0, 1, 2}) {
    if (standard != line) dup2(nothing, standard);
  }
  char word = 0;
  ssize_t got = 0;
  do {
    got = read(line, &word, 1);
  } while (got < 0 && errno == EINTR);
  if (got == 0) {  // it closed without a word: the run is dead
    KillRunProcesses(run);
    std::error_code error;
    fs::remove_all(directory, error);
  }
  _exit(0);
}

}  // namespace

int KillRunProcesses(const std::string& run, const std::string& worker) {
  int killed = 0, quiet = 0;
  for (int look = 0; look < kMaxLooks && quiet < 2; ++look) {
    const std::vector<pid_t> found = Find(run, worker);
    for (const pid_t pid : found) killed += kill(pid, SIGKILL) == 0;
    // Quiet twice: a process may have forked behind the first look.
    quiet = found.empty() ? quiet + 1 : 0;
    if (!found.empty()) Pause();
  }
  return killed;
}

void AdoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void ReapOrphans(std::span<const pid_t> ours) {
  while (true) {
    siginfo_t ended = {};
    // Looked at first: the end of one of ours is its owner's to take.
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    if (std::find(ours.begin(), ours.end(), ended.si_pid) != ours.end()) return;
    waitpid(ended.si_pid, nullptr, WNOHANG);
  }
}

int KillOrphans(std::span<const pid_t> ours) {
  int killed = 0;
  for (int look = 0; look < kMaxLooks; ++look) {
    // Those of one that dies are ours next.
    const std::vector<pid_t> found = Adopted(ours);
    if (found.empty()) break;
    for (const pid_t pid : found) {
      killed += kill(pid, SIGKILL) == 0;
      waitpid(pid, nullptr, WNOHANG);
    }
    Pause();
  }
  return killed;
}

int SweepStaleRuns(const std::string& parent) {
  int swept = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename();
    if (name.compare(0, sizeof kPrefix - 1, kPrefix) != 0 || !entry.is_directory(error)) continue;
    struct stat facts = {};
    if (stat(entry.path().c_str(), &facts) != 0 || facts.st_uid != geteuid()) continue;
    const int lock = open((entry.path() / kLockName).c_str(), O_RDWR | O_CLOEXEC);
    if (lock < 0) continue;  // being made this moment, or not ours
    // A run that ends removes all before it lets go: of its lock nothing is left but what we
    // opened.
    const bool free = flock(lock, LOCK_EX | LOCK_NB) == 0 && fstat(lock, &facts) == 0;
    if (free && facts.st_nlink > 0) {
      KillRunProcesses(name.substr(sizeof kPrefix - 1));
      fs::remove_all(entry.path(), error);
      ++swept;
    }
    close(lock);
  }
  return swept;
}

StatusOr<RunDirectory> RunDirectory::Create(const std::string& parent, const std::string& run) {
  RunDirectory directory;
  directory.path_ = parent + "/" + kPrefix + run;
  if (mkdir(directory.path_.c_str(), 0700) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot make ", std::exchange(directory.path_, ""), ": ", std::strerror(errno)));
  }
  // Locked before it has its name: another run that starts now takes an unlocked one for a stale
  // one's, and would remove this directory.
  const std::string lock = directory.path_ + "/" + kLockName;
  const std::string fresh = directory.path_ + "/" + kFreshLockName;
  directory.lock_ = open(fresh.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (directory.lock_ < 0 || flock(directory.lock_, LOCK_EX | LOCK_NB) != 0 ||
      rename(fresh.c_str(), lock.c_str()) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot lock ", directory.path_, ": ", std::strerror(errno)));
  }
  return directory;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::exchange(other.lock_, -1)) {}

RunDirectory::~RunDirectory() {
  if (path_.empty()) return;
  std::error_code error;
  fs::remove_all(path_, error);
  if (lock_ >= 0) close(lock_);
}

StatusOr<Reaper> Reaper::Start(const std::string& run, const std::string& directory) {
  int line[2];
  if (pipe2(line, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  const pid_t pid = fork();
  if (pid == 0) {
    // Our copy of the writing end must go, else the line never ends.
    close(line[1]);
    ReapWhenAlone(line[0], run, directory);
  }
  close(line[0]);
  if (pid < 0) {
    close(line[1]);
    return absl::ResourceExhaustedError(absl::StrCat("fork: ", std::strerror(errno)));
  }
  Reaper reaper;
  reaper.pid_ = pid;
  reaper.line_ = line[1];
  return reaper;
}

Reaper::Reaper(Reaper&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), line_(std::exchange(other.line_, -1)) {}

Reaper::~Reaper() {
  if (pid_ < 0) return;
  const char word = 'q';
  [[maybe_unused]] const ssize_t written = write(line_, &word, 1);
  close(line_);
  waitpid(pid_, nullptr, 0);
}

}  // namespace crowdsurf::controller
