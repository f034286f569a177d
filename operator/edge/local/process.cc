#include "operator/edge/local/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "base/edge/inherited.h"
#include "base/text.h"

namespace crowdsurf::controller {
namespace {

constexpr size_t kMaxShebang = 256;  // bytes that the kernel reads of the first line

std::string Absolute(const std::string& directory, const std::string& path) {
  return path.starts_with('/') || directory.empty() ? path : directory + "/" + path;
}

bool IsFolder(const std::string& path) {
  struct stat facts = {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// Why a program cannot run in `directory`; empty: nothing speaks against it. Said of the folder,
// because the kernel has the same error for a program that is missing.
std::string DirectoryProblem(const std::string& directory) {
  struct stat facts = {};
  if (directory.empty()) return {};
  const char* why = stat(directory.c_str(), &facts) != 0   ? std::strerror(errno)
                    : !S_ISDIR(facts.st_mode)              ? std::strerror(ENOTDIR)
                    : access(directory.c_str(), X_OK) != 0 ? std::strerror(errno)
                                                           : nullptr;
  return why == nullptr ? std::string()
                        : absl::StrCat("the working directory ", directory, ": ", why);
}

// The file that execvp would run in `directory`, found before the fork: after it only
// async-signal-safe calls are allowed, because other threads may hold the allocator's lock.
StatusOr<std::string> FindProgram(const ProcessOptions& options) {
  if (options.argv.empty() || options.argv[0].empty()) {
    return absl::NotFoundError("the command is empty");
  }
  const std::string& name = options.argv[0];
  if (const std::string problem = DirectoryProblem(options.directory); !problem.empty()) {
    return absl::NotFoundError(absl::StrCat("cannot run ", name, ": ", problem));
  }
  if (name.find('/') != std::string::npos) {
    const std::string path = Absolute(options.directory, name);
    if (IsFolder(path)) return absl::NotFoundError("cannot run " + path + ": it is a folder");
    // As it stands: the child runs it in its working directory.
    if (access(path.c_str(), X_OK) == 0) return name;
    return absl::NotFoundError(absl::StrCat("cannot run ", path, ": ", std::strerror(errno)));
  }
  std::string path = EnvironmentValue(options.environment, "PATH");
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find(':', begin), path.size());
    // An empty entry is the working directory.
    const std::string folder = begin == end ? "." : path.substr(begin, end - begin);
    const std::string candidate = folder + "/" + name;
    const std::string seen = Absolute(options.directory, candidate);
    if (access(seen.c_str(), X_OK) == 0 && !IsFolder(seen)) return candidate;
    begin = end + 1;
  }
  return absl::NotFoundError(absl::StrCat("there is no program ", name, " in PATH ", path));
}

// Why the kernel does not run a file that is there and may be run: of a script it is often the
// interpreter that it means. `path` is as this process sees it.
std::string WhyNotRun(const std::string& path, int error) {
  std::ifstream file(path, std::ios::binary);
  std::string first(kMaxShebang, '\0');
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  first.resize(std::min(static_cast<size_t>(file.gcount()), first.find('\n')));
  if (!first.starts_with("#!")) {
    const bool foreign = error == ENOEXEC;
    return absl::StrCat(std::strerror(error), foreign ? " (no #! in its first line)" : "");
  }
  const bool carriage = first.ends_with('\r');
  if (carriage) first.pop_back();
  const size_t begin = std::min(first.find_first_not_of(" \t", 2), first.size());
  const size_t end = std::min(first.find_first_of(" \t", begin), first.size());
  return absl::StrCat("its interpreter ", ShownText(first.substr(begin, end - begin)), ": ",
                      std::strerror(error),
                      carriage ? " (its lines end with a carriage return)" : "");
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Launch {
  const char* program;
  const char* directory;
  char* const* argv;
  char* const* environment;
  int output;   // write end
  int failure;  // write end: errno of a failed exec goes there
  pid_t parent;
};

// In the child, after fork: async-signal-safe calls only.
[[noreturn]] void Become(const Launch& launch) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launch.parent) _exit(127);  // it died before we asked
  sigset_t none;
  sigemptyset(&none);
  // The run may block signals that its children have to see.
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGWINCH}) {
    // Under nohup and in the background of a script these two are ignored, and stay so.
    if ((signal == SIGINT || signal == SIGHUP) && IsIgnored(signal)) continue;
    ::signal(signal, SIG_DFL);
  }
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(launch.output, 1);
  dup2(launch.output, 2);
  // What libraries opened without O_CLOEXEC (sockets) must not live on in the child.
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  if (launch.directory == nullptr || chdir(launch.directory) == 0) {
    execve(launch.program, launch.argv, launch.environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(launch.failure, &error, sizeof error);
  _exit(127);
}

Status LastError(const std::string& what) {
  // No more processes or files is worth another try, unlike a program that is missing.
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

StatusOr<Process> Process::Start(const ProcessOptions& options) {
  ASSIGN_OR_RETURN(const std::string program, FindProgram(options));
  int output[2], failure[2];
  if (pipe2(output, O_CLOEXEC) != 0) return LastError("pipe");
  if (pipe2(failure, O_CLOEXEC) != 0) {
    close(output[0]);
    close(output[1]);
    return LastError("pipe");
  }
  const std::vector<char*> argv = Pointers(options.argv);
  const std::vector<char*> environment = Pointers(options.environment);
  const Launch launch{
      program.c_str(), options.directory.empty() ? nullptr : options.directory.c_str(),
      argv.data(),     environment.data(),
      output[1],       failure[1],
      getpid()};
  const pid_t pid = fork();
  if (pid == 0) Become(launch);
  close(output[1]);
  close(failure[1]);
  int error = pid < 0 ? errno : 0;
  if (pid > 0) {
    setpgid(pid, pid);  // whoever is first; the other fails without harm
    // A successful exec closes the pipe, and the read ends without an errno.
    const ssize_t got = read(failure[0], &error, sizeof error);
    if (got != sizeof error) error = 0;
  }
  close(failure[0]);
  if (error != 0) {
    close(output[0]);
    if (pid < 0) return absl::ResourceExhaustedError(absl::StrCat("fork: ", std::strerror(error)));
    waitpid(pid, nullptr, 0);
    return absl::NotFoundError(absl::StrCat(
        "cannot run ", program, ": ", WhyNotRun(Absolute(options.directory, program), error)));
  }
  Process process;
  process.pid_ = pid;
  process.output_ = output[0];
  // The host reads it between other work and must never wait.
  fcntl(process.output_, F_SETFL, O_NONBLOCK);
  process.pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  return process;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      output_(std::exchange(other.output_, -1)),
      exit_code_(std::exchange(other.exit_code_, std::nullopt)),
      kept_(std::move(other.kept_)),
      head_(std::move(other.head_)),
      printed_(other.printed_) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    Close();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::exchange(other.pidfd_, -1);
    output_ = std::exchange(other.output_, -1);
    exit_code_ = std::exchange(other.exit_code_, std::nullopt);
    kept_ = std::move(other.kept_);
    head_ = std::move(other.head_);
    printed_ = other.printed_;
  }
  return *this;
}

Process::~Process() { Close(); }

void Process::Close() {
  if (pid_ > 0) {
    SignalGroup(SIGKILL);
    if (!exit_code_) waitpid(pid_, nullptr, 0);
  }
  if (pidfd_ >= 0) close(pidfd_);
  if (output_ >= 0) close(output_);
  pid_ = pidfd_ = output_ = -1;
}

void Process::Signal(int signal) const {
  if (pid_ > 0 && !exit_code_) kill(pid_, signal);
}

void Process::SignalGroup(int signal) const {
  // After the leader is reaped its group may live on with what it started; the id is then still
  // taken, so it cannot name strangers as long as somebody is in it, and ESRCH otherwise.
  if (pid_ > 0) kill(-pid_, signal);
}

void Process::Drain() {
  char block[16 * 1024];
  while (output_ >= 0) {
    const ssize_t got = read(output_, block, sizeof block);
    if (got > 0) {
      kept_.append(block, static_cast<size_t>(got));
      head_.append(block, std::min(static_cast<size_t>(got), kKeptHead - head_.size()));
      printed_ += static_cast<uint64_t>(got);
      // Only at twice the size, so that not every block moves the whole text.
      if (kept_.size() > 2 * kKeptOutput) kept_.erase(0, kept_.size() - kKeptOutput);
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    close(output_);
    output_ = -1;
  }
}

bool Process::Reap() {
  if (exit_code_) return true;
  CHECK(pid_ > 0);
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  // Before the exit is known to others, who then read the output.
  Drain();
  if (kept_.size() > kKeptOutput) kept_.erase(0, kept_.size() - kKeptOutput);
  // As a shell tells it.
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (pidfd_ >= 0) close(std::exchange(pidfd_, -1));
  return true;
}

std::string EnvironmentValue(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry.compare(0, name.size(), name) == 0 &&
        entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace crowdsurf::controller
