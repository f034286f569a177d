#include "cli/logs/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "operator/edge/local/kept_log.h"

namespace crowdsurf::cli {
namespace {

// More than a log's file ever holds: somebody else's file of that name must not fill our memory.
constexpr size_t kMostOfFile = 2 * controller::kKeptOutput;
constexpr int kTries = 5;  // the log may begin anew between two opens

// A log's file, open; none where there is no such file.
struct LogFile {
  explicit LogFile(const std::string& path)
      : fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)), error(errno) {
    struct stat info = {};
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
      file = info.st_ino;
      bytes = info.st_size;
    }
  }
  LogFile(const LogFile&) = delete;
  ~LogFile() {
    if (fd >= 0) close(fd);
  }
  // What follows `from`.
  std::string After(off_t from) const {
    std::string text;
    char block[16 << 10];
    while (file != 0 && text.size() < kMostOfFile) {
      const ssize_t got = pread(fd, block, sizeof block, from + static_cast<off_t>(text.size()));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      text.append(block, static_cast<size_t>(got));
    }
    return text;
  }

  const int fd;
  const int error;  // of a failed open
  ino_t file = 0;
  off_t bytes = 0;
};

}  // namespace

StatusOr<std::string> LogReader::Read() {
  for (int i = 0; i < kTries; ++i) {
    const LogFile newer(path_), older(path_ + controller::kOlderLog);
    if (newer.fd < 0 && newer.error != ENOENT) {
      return absl::PermissionDeniedError(
          absl::StrCat("cannot read ", path_, ": ", std::strerror(newer.error)));
    }
    if (newer.file == 0) return std::string();
    if (newer.file == older.file) continue;
    // The first read is of everything.
    std::string text = file_ == 0 ? LogFile(path_ + controller::kLogHead).After(0) : std::string();
    // PATH is another file than last time, so what is older is news as well, from where it was
    // left. A number may be used again; a log never becomes shorter.
    if (newer.file != file_ || newer.bytes < read_) {
      text += older.After(older.file == file_ ? read_ : 0);
      read_ = 0;
    }
    const std::string fresh = newer.After(read_);
    file_ = newer.file;
    read_ += static_cast<off_t>(fresh.size());
    return text + fresh;
  }
  return std::string();
}

}  // namespace crowdsurf::cli
