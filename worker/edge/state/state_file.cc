#include "worker/edge/state/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace crowdsurf::worker {
namespace {

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags, uint32_t mode = 0)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  OpenFile(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

Status FileError(const char* what, const std::string& path, int error) {
  const std::string words = absl::StrCat(what, " ", path, ": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(words);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return absl::ResourceExhaustedError(words);
  return absl::InternalError(words);
}

Status WriteParts(int fd, const std::vector<ByteView>& parts, const std::string& path) {
  for (ByteView part : parts) {
    while (!part.empty()) {
      const ssize_t n = ::write(fd, part.data(), part.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return FileError("write", path, n == 0 ? ENOSPC : errno);
      part = part.subspan(static_cast<size_t>(n));
    }
  }
  return absl::OkStatus();
}

Status SyncFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const OpenFile open(folder, O_RDONLY | O_DIRECTORY);
  if (open.fd() < 0 || ::fsync(open.fd()) != 0) return FileError("sync", folder, errno);
  return absl::OkStatus();
}

}  // namespace

Status WriteFileAtomically(const std::string& path, const std::vector<ByteView>& parts,
                           Durable durable, uint32_t mode, const std::string& writer) {
  // Named after its writer: a left-over of a crash is overwritten, never collected.
  const std::string temporary = path + (writer.empty() ? "" : "." + writer) + ".new";
  const auto write = [&]() -> Status {
    ::unlink(temporary.c_str());
    const OpenFile file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (file.fd() < 0) return FileError("create", temporary, errno);
    RETURN_IF_ERROR(WriteParts(file.fd(), parts, temporary));
    if (durable == Durable::kYes && ::fsync(file.fd()) != 0) {
      return FileError("sync", temporary, errno);
    }
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      return FileError("rename", temporary, errno);
    return durable == Durable::kYes ? SyncFolder(path) : absl::OkStatus();
  };
  const Status status = write();
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

StatusOr<Bytes> ReadFile(const std::string& path, uint64_t most) {
  const OpenFile file(path, O_RDONLY);
  struct stat info {};
  if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0) return FileError("open", path, errno);
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  if (size > most) {
    return absl::OutOfRangeError(absl::StrCat(path, " has ", size, " bytes, at most ", most));
  }
  Bytes bytes(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.fd(), bytes.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return FileError("read", path, n == 0 ? EIO : errno);
    done += static_cast<size_t>(n);
  }
  return bytes;
}

int OpenSharedFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))) return fd;
  ::close(fd);
  return -1;
}

}  // namespace crowdsurf::worker
