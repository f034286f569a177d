#include "operator/edge/local/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace crowdsurf::controller {
namespace {

Status FileError(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::InternalError(text);
}

bool WriteAll(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Status WriteFile(const std::string& path, std::string_view content, unsigned mode) {
  const std::string temporary = path + ".new";
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (file < 0) return FileError("cannot write " + path, errno);
  int error = WriteAll(file, content) ? 0 : errno;
  if (close(file) != 0 && error == 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return FileError("cannot write " + path, error);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return FileError("cannot name " + path, errno);
  return absl::OkStatus();
}

std::string ReadFile(const std::string& path, size_t limit) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::string content;
  char block[4096];
  while (content.size() < limit) {
    const ssize_t got = read(file, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    content.append(block, static_cast<size_t>(got));
  }
  close(file);
  if (content.size() > limit) content.resize(limit);
  return content;
}

Status MakeFolders(const std::string& path, unsigned mode) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FileError("cannot make " + path, error.value());
  if (chmod(path.c_str(), mode) != 0) return FileError("cannot make " + path, errno);
  return absl::OkStatus();
}

}  // namespace crowdsurf::controller
