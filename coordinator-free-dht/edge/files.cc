#include "coordinator-free-dht/edge/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace crowdsurf::dht {
namespace {

Status Error(const char* what, const std::filesystem::path& path) {
  const int code = errno;
  const std::string text = absl::StrCat(what, " ", path.string(), ": ", std::strerror(code));
  return code == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

// Closes on every path out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

StatusOr<std::string> ReadFile(const std::filesystem::path& path, size_t limit) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return Error("open", path);
  std::string out;
  char buffer[16384];
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error("read", path);
    if (n == 0) return out;
    out.append(buffer, static_cast<size_t>(n));
    if (out.size() > limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat("read ", path.string(), ": more than ", limit, " bytes"));
    }
  }
}

Status WriteFileAtomically(const std::filesystem::path& path, const std::string& contents,
                           unsigned mode) {
  static std::atomic<uint64_t> serial{0};
  const std::filesystem::path temporary =
      absl::StrCat(path.string(), ".tmp.", ::getpid(), ".", serial.fetch_add(1));
  {
    const Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (fd.get() < 0) return Error("create", temporary);
    size_t written = 0;
    while (written < contents.size()) {
      const ssize_t n = ::write(fd.get(), contents.data() + written, contents.size() - written);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const Status status = Error("write", temporary);
        ::unlink(temporary.c_str());
        return status;
      }
      written += static_cast<size_t>(n);
    }
    if (::fchmod(fd.get(), mode) != 0 || ::fsync(fd.get()) != 0) {
      const Status status = Error("sync", temporary);
      ::unlink(temporary.c_str());
      return status;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Status status = Error("rename", path);
    ::unlink(temporary.c_str());
    return status;
  }
  return absl::OkStatus();
}

}  // namespace crowdsurf::dht
