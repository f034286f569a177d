#include "worker/edge/link/link_folder.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace crowdsurf::worker {
namespace {

// O_NONBLOCK: nobody may write to the other end of a FIFO.
constexpr int kCareful = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
constexpr int kCreateTries = 8;  // the trainer may take the name again and again
constexpr char kNameless[] = "nameless.new";

}  // namespace

StatusOr<LinkFolder> LinkFolder::Open(const std::string& path) {
  OwnedFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.valid()) return LinkFolder(path, std::move(fd));
  const std::string words = absl::StrCat("CROWDSURF_DIR ", path, ": ", std::strerror(errno));
  if (errno == ENOENT) return absl::NotFoundError(words);
  return absl::FailedPreconditionError(
      absl::StrCat(words, " (it must be a folder, not a symbolic link)"));
}

Status LinkFolder::Failed(const char* what, const char* name, int error) const {
  const std::string words = absl::StrCat(what, " ", PathOf(name), ": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(words);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(words);
  }
  // ELOOP: a symbolic link; ENXIO: a socket, or a FIFO that nobody reads.
  if (error == ELOOP || error == ENXIO || error == EISDIR) {
    return absl::FailedPreconditionError(words);
  }
  return absl::InternalError(words);
}

StatusOr<OwnedFd> LinkFolder::OpenOwn(const char* name) const {
  OwnedFd file(::openat(fd(), name, O_RDWR | kCareful));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return Failed("open", name, errno);
  // Of the open file, not of its name, which may lead elsewhere by now.
  const char* wrong = !S_ISREG(info.st_mode)       ? "is no regular file"
                      : info.st_nlink != 1         ? "has a second name"
                      : info.st_uid != ::geteuid() ? "is of another user"
                                                   : nullptr;
  if (wrong == nullptr) return file;
  return absl::FailedPreconditionError(absl::StrCat(PathOf(name), " ", wrong));
}

StatusOr<OwnedFd> LinkFolder::Create(const char* name) const {
  for (int i = 0; i < kCreateTries; ++i) {
    // O_EXCL fails where something takes the name in between, a link too: then once more.
    Remove(name);
    OwnedFd file(::openat(fd(), name, O_RDWR | O_CREAT | O_EXCL | kCareful, 0600));
    if (file.valid()) return file;
    if (errno != EEXIST) return Failed("create", name, errno);
  }
  return Failed("create", name, EEXIST);
}

// By a name that goes at once: not every file system makes files without one.
StatusOr<OwnedFd> LinkFolder::CreateNameless() const {
  ASSIGN_OR_RETURN(OwnedFd file, Create(kNameless));
  Remove(kNameless);
  return file;
}

Status LinkFolder::Rename(const char* from, const char* to) const {
  if (::renameat(fd(), from, fd(), to) == 0) return absl::OkStatus();
  return Failed("rename", from, errno);
}

void LinkFolder::Remove(const char* name) const { (void)::unlinkat(fd(), name, 0); }

bool LinkFolder::IsSocket(const char* name) const {
  struct stat info {};
  return ::fstatat(fd(), name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode);
}

Status LinkFolder::OpenSocketToAll(const char* name) const {
  const OwnedFd socket(::openat(fd(), name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!socket.valid() || ::fstat(socket.get(), &info) != 0) return Failed("open", name, errno);
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(PathOf(name), " is no socket"));
  }
  // A descriptor of O_PATH has no fchmod; its own path leads to it and to nothing else.
  const std::string own = absl::StrCat("/proc/self/fd/", socket.get());
  if (::chmod(own.c_str(), 0666) != 0) return Failed("chmod", name, errno);
  return absl::OkStatus();
}

std::string LinkFolder::Through(const char* name) const {
  return absl::StrCat("/proc/self/fd/", fd(), "/", name);
}

}  // namespace crowdsurf::worker
