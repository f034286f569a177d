#include "worker/edge/link/held_state.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

Status HeldStateError(const char* what, int error) {
  const std::string words = absl::StrCat(what, " a trainer's state: ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(words);
  }
  return absl::InternalError(words);
}

}  // namespace

StatusOr<std::unique_ptr<HeldState>> HeldState::Make(const LinkFolder& folder, uint64_t bytes) {
  ASSIGN_OR_RETURN(OwnedFd file, folder.CreateNameless());
  // mmap refuses a length of 0.
  if (bytes == 0) return std::unique_ptr<HeldState>(new HeldState(std::move(file), {}));
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return HeldStateError("make room for", errno);
  }
  // Read-only: pwrite says that a volume is full, where a store through a mapping would be a
  // SIGBUS.
  void* base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return HeldStateError("map", errno);
  const ByteView view(static_cast<const uint8_t*>(base), bytes);
  return std::unique_ptr<HeldState>(new HeldState(std::move(file), view));
}

HeldState::~HeldState() {
  if (!view_.empty()) ::munmap(const_cast<uint8_t*>(view_.data()), view_.size());
}

Status HeldState::Reserve() {
  if (view_.empty()) return absl::OkStatus();
  // It returns its error and leaves errno alone.
  const int error = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(view_.size()));
  return error == 0 ? absl::OkStatus() : HeldStateError("make room for", error);
}

Status HeldState::Write(uint64_t offset, ByteView piece) {
  CHECK_LE(offset + piece.size(), view_.size());
  while (!piece.empty()) {
    const ssize_t n = ::pwrite(file_.get(), piece.data(), piece.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return HeldStateError("write", n == 0 ? ENOSPC : errno);
    piece = piece.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace crowdsurf::worker
