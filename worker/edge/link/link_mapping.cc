#include "worker/edge/link/link_mapping.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/edge/clock.h"
#include "worker/edge/link/owned_fd.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kHugePage = 2 * kMiB;
// What is left then keeps small pages. One huge page took 1 to 14 ms on a virtual machine, nearly
// all of it to clear memory.
constexpr Duration kAskForHugePages = Seconds(4);
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; the C library of Debian 12 does not name it yet
#endif

Status Failed(const char* what, const std::string& path) {
  return absl::InternalError(absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

std::string Size(uint64_t bytes) {
  return bytes < 10 * kMiB ? absl::StrCat(bytes >> 10, " KiB") : absl::StrCat(bytes / kMiB, " MiB");
}

// In a pod the volume has a size of its own; elsewhere it is the machine's, which others fill, too.
Status NoSpace(int fd, const std::string& path, const LinkGeometry& g) {
  const std::string dir = path.substr(0, path.rfind('/'));
  struct statvfs fs {};
  const uint64_t free = ::fstatvfs(fd, &fs) == 0 ? fs.f_bavail * fs.f_frsize : 0;
  const uint64_t need = g.file_bytes / kMiB + 1;
  return absl::ResourceExhaustedError(absl::StrCat(
      "the trainer link needs ", Size(g.file_bytes), " (3 x the ", Size(g.elements * sizeof(float)),
      " that are averaged) and ", dir, " has ", Size(free),
      " free: make room there, or in a pod set spec.agent.sharedMemory to at least ",
      need + need / 8 + 1, "Mi"));
}

Status WriteAll(int fd, ByteView bytes, uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed("write", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

// Maps a file where its huge pages can be mapped whole: at a multiple of their size. MAP_FAILED as
// of mmap(2).
void* MapAligned(int fd, uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t mapped = (bytes + page - 1) / page * page, reserved = mapped + kHugePage;
  void* place =
      ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return place;
  uint8_t* const first = static_cast<uint8_t*>(place);
  const uint64_t before = (kHugePage - reinterpret_cast<uintptr_t>(place) % kHugePage) % kHugePage;
  void* base = ::mmap(first + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  const int why = errno;
  if (base == MAP_FAILED) {
    ::munmap(place, reserved);
    errno = why;
    return base;
  }
  if (before > 0) ::munmap(place, before);
  ::munmap(first + before + mapped, reserved - before - mapped);
  return base;
}

}  // namespace

StatusOr<LinkMapping> LinkMapping::Map(int fd, LinkGeometry geometry) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Failed("fstat", "tensors");
  void* base = MapAligned(fd, geometry.file_bytes);
  if (base == MAP_FAILED) return Failed("mmap", "tensors");
  LinkMapping mapping;
  mapping.base_ = static_cast<uint8_t*>(base);
  mapping.inode_ = info.st_ino;
  mapping.geometry_ = std::move(geometry);
  return mapping;
}

StatusOr<LinkMapping> LinkMapping::Open(const std::string& path) {
  const OwnedFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.valid()) return Open(file.get(), path);
  if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("no ", path));
  return Failed("open", path);
}

StatusOr<LinkMapping> LinkMapping::Open(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Failed("fstat", path);
  const uint64_t bytes = static_cast<uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || bytes < kLinkControlBytes) {
    return absl::DataLossError(absl::StrCat(path, ": no link: ", bytes, " bytes"));
  }
  // Mapped as long as the file is, to read what it says: nothing of that is believed before the
  // check.
  void* base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return Failed("mmap", path);
  auto geometry = ReadLinkIdentity({static_cast<const uint8_t*>(base), bytes}, bytes);
  ::munmap(base, bytes);
  if (!geometry.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": ", geometry.status().message()));
  }
  return Map(fd, *std::move(geometry));
}

StatusOr<LinkMapping> LinkMapping::Create(int fd, const std::string& path,
                                          const LinkGeometry& geometry) {
  // fchmod, because a umask of 022 would lock other users out of a file made 0666.
  if (::fchmod(fd, 0666) != 0) return Failed("fchmod", path);
  if (::ftruncate(fd, static_cast<off_t>(geometry.file_bytes)) != 0) {
    return errno == EFBIG ? NoSpace(fd, path, geometry) : Failed("resize", path);
  }
  ASSIGN_OR_RETURN(LinkMapping mapping, Map(fd, geometry));
  mapping.AskForHugePages(fd);
  // Allocated now: a full tmpfs must be an answer to `register`, not a SIGBUS in mid-training.
  if (const int e = ::posix_fallocate(fd, 0, static_cast<off_t>(geometry.file_bytes))) {
    errno = e;
    if (e != ENOSPC && e != EFBIG) return Failed("allocate", path);
    // What huge pages took already is free again before the message says how much is.
    if (::ftruncate(fd, 0) != 0) return Failed("empty", path);
    return NoSpace(fd, path, geometry);
  }
  RETURN_IF_ERROR(WriteAll(fd, EncodeLinkIdentity(geometry), 0, path));
  RETURN_IF_ERROR(WriteAll(fd, EncodeLinkTable(geometry.tensors), geometry.table_offset, path));
  return mapping;
}

// A volume of memory gives huge pages only where it is mounted so, or where a program asks for
// each. The kernel wants one page there already. An error is no harm: it has none left, or is
// older.
void LinkMapping::AskForHugePages(int fd) {
  const Time until = SteadyNow() + kAskForHugePages;
  for (uint64_t at = 0; at + kHugePage <= geometry_.file_bytes; at += kHugePage) {
    if (SteadyNow() > until) return;
    if (::posix_fallocate(fd, static_cast<off_t>(at), 1) != 0) return;
    if (::madvise(base_ + at, kHugePage, MADV_COLLAPSE) != 0 && errno != EAGAIN) return;
  }
}

LinkMapping::LinkMapping(LinkMapping&& other) noexcept { *this = std::move(other); }

LinkMapping& LinkMapping::operator=(LinkMapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(inode_, other.inode_);
  std::swap(geometry_, other.geometry_);
  return *this;
}

LinkMapping::~LinkMapping() {
  if (base_ != nullptr) ::munmap(base_, geometry_.file_bytes);
}

void RingBell(std::atomic<uint32_t>& bell) {
  bell.fetch_add(1, std::memory_order_release);
  // Without FUTEX_PRIVATE_FLAG: the waiter is another process.
  ::syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void WaitBell(const std::atomic<uint32_t>& bell, uint32_t seen, Duration most) {
  const int64_t ns = std::max<int64_t>(0, most.nanoseconds());
  const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
  // The kernel compares with `seen` itself, so no bell is missed. Every error means: look again.
  ::syscall(SYS_futex, &bell, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

}  // namespace crowdsurf::worker
