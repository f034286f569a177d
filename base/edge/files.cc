#include "base/edge/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace crowdsurf {
namespace {

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags, unsigned mode = 0)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

Status FileError(const char* what, const std::string& path, int error) {
  const std::string words = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(words);
  // EFBIG: the limit of the process or of the file system. To a caller each of these is a want of
  // room.
  if (error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM)
    return absl::ResourceExhaustedError(words);
  return absl::InternalError(words);
}

Status WriteParts(int fd, const std::vector<ByteView>& parts, const std::string& path) {
  for (ByteView part : parts) {
    while (!part.empty()) {
      const ssize_t n = ::write(fd, part.data(), part.size());
      if (n < 0 && errno == EINTR) continue;
      // A write of nothing sets no errno. Taken for a full disk, it cannot loop for ever.
      if (n <= 0) return FileError("write", path, n == 0 ? ENOSPC : errno);
      part = part.subspan(static_cast<size_t>(n));
    }
  }
  return absl::OkStatus();
}

// A new name is an entry of its folder, which has to reach the disk, too (fsync(2)).
Status SyncFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const OpenFile open(folder, O_RDONLY | O_DIRECTORY);
  if (open.fd() < 0 || ::fsync(open.fd()) != 0) return FileError("write", folder, errno);
  return absl::OkStatus();
}

Status WriteAndRename(const std::string& temporary, const std::string& path,
                      const std::vector<ByteView>& parts, const WriteOptions& options) {
  // Another user may write to the folder: a link that has the name is neither followed nor filled.
  const OpenFile file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, options.mode);
  if (file.fd() < 0) return FileError("write", path, errno);
  // Whatever the process's umask is.
  if (::fchmod(file.fd(), options.mode) != 0) return FileError("write", path, errno);
  RETURN_IF_ERROR(WriteParts(file.fd(), parts, path));
  // The contents are on the disk before the name leads to them: a crash in between leaves the old
  // file.
  if (options.durable == Durable::kYes && ::fsync(file.fd()) != 0)
    return FileError("write", path, errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return FileError("write", path, errno);
  return options.durable == Durable::kYes ? SyncFolder(path) : absl::OkStatus();
}

}  // namespace

Status WriteFileAtomically(const std::string& path, const std::vector<ByteView>& parts,
                           const WriteOptions& options) {
  // Named after its writer: what a crash left is overwritten, never collected.
  const std::string temporary =
      path + (options.writer.empty() ? "" : "." + options.writer) + ".new";
  ::unlink(temporary.c_str());
  Status status = WriteAndRename(temporary, path, parts, options);
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Status WriteFileAtomically(const std::string& path, std::string_view contents,
                           const WriteOptions& options) {
  return WriteFileAtomically(path, std::vector<ByteView>{AsBytes(contents)}, options);
}

StatusOr<std::string> ReadFile(const std::string& path, size_t limit) {
  const OpenFile file(path, O_RDONLY);
  if (file.fd() < 0) return FileError("read", path, errno);
  std::string contents;
  char block[16384];
  while (true) {
    const ssize_t n = ::read(file.fd(), block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read", path, errno);
    if (n == 0) return contents;
    contents.append(block, static_cast<size_t>(n));
    if (contents.size() > limit)
      return absl::OutOfRangeError(
          absl::StrCat("cannot read ", path, ": more than ", limit, " bytes"));
  }
}

int OpenSharedFile(const std::string& path) {
  // O_NONBLOCK: the open of a FIFO would wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))) return fd;
  ::close(fd);
  return -1;
}

Status MakeFolders(const std::string& path, unsigned mode) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FileError("make", path, error.value());
  // create_directories leaves the mode to the umask.
  if (::chmod(path.c_str(), mode) != 0) return FileError("make", path, errno);
  return absl::OkStatus();
}

}  // namespace crowdsurf
