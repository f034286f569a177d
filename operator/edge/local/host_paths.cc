#include "operator/edge/local/host_paths.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/edge/files.h"

namespace crowdsurf::controller {
namespace {

struct Kind {
  const char* type;
  mode_t mode;  // S_IFMT of what is there; 0: any
  const char* words;
};

constexpr Kind kKinds[] = {{"", 0, ""},
                           {"DirectoryOrCreate", S_IFDIR, "a folder"},
                           {"Directory", S_IFDIR, "a folder"},
                           {"FileOrCreate", S_IFREG, "a file"},
                           {"File", S_IFREG, "a file"},
                           {"Socket", S_IFSOCK, "a socket"},
                           {"CharDevice", S_IFCHR, "a character device"},
                           {"BlockDevice", S_IFBLK, "a block device"}};

const Kind& KindOf(const std::string& type) {
  for (const Kind& kind : kKinds) {
    if (type == kind.type) return kind;
  }
  return kKinds[0];  // Validate has refused it
}

Status Failed(const std::string& path, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat("hostPath ", path, ": ", what));
}

Status MakeFile(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return Failed(path, std::strerror(errno));
  close(file);
  return absl::OkStatus();
}

Status Prepare(const HostMount& mount) {
  const Kind& kind = KindOf(mount.type);
  struct stat facts = {};
  if (stat(mount.path.c_str(), &facts) != 0) {
    if (errno != ENOENT) return Failed(mount.path, std::strerror(errno));
    if (mount.type == "FileOrCreate") return MakeFile(mount.path);
    if (!mount.type.empty() && mount.type != "DirectoryOrCreate") {
      return Failed(mount.path, "is not there");
    }
    return MakeFolders(mount.path);
  }
  if (kind.mode != 0 && (facts.st_mode & S_IFMT) != kind.mode) {
    return Failed(mount.path, absl::StrCat("is not ", kind.words));
  }
  return absl::OkStatus();
}

}  // namespace

Status PrepareHostPaths(const TrainingJobSpec& spec) {
  for (const HostMount& mount : HostMounts(spec)) {
    RETURN_IF_ERROR(Prepare(mount));
    if (mount.below.empty()) continue;
    const std::string below = mount.path + "/" + mount.below;
    struct stat facts = {};
    if (stat(below.c_str(), &facts) == 0) continue;
    if (errno != ENOENT) return Failed(below, std::strerror(errno));
    RETURN_IF_ERROR(MakeFolders(below));
  }
  return absl::OkStatus();
}

}  // namespace crowdsurf::controller
