#include "operator/edge/local/kept_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/edge/files.h"

namespace crowdsurf::controller {
namespace {

constexpr size_t kHalf = kKeptOutput / 2;
constexpr char kGap[] = "\n[what was printed here is not kept]\n";

}  // namespace

bool KeptLog::Write(std::string_view text) {
  // The folder is the user's own, and may be shared: a link that has the name is not followed.
  const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  ssize_t written = 0;
  do {
    written = write(fd, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  close(fd);
  in_file_ += static_cast<size_t>(std::max<ssize_t>(written, 0));
  return written == static_cast<ssize_t>(text.size());
}

void KeptLog::KeepHead(std::string_view head) {
  if (headed_) return;
  headed_ = WriteFileAtomically(path_ + kLogHead, absl::StrCat(std::string(head), kGap)).ok();
}

void KeptLog::Append(uint64_t printed, std::string_view kept, std::string_view head) {
  const uint64_t fresh = printed - printed_;
  printed_ = printed;
  const bool skipped = fresh > kept.size();
  if (skipped) KeepHead(head);
  lost_ = lost_ || skipped;
  std::string_view text = kept.substr(kept.size() - std::min<uint64_t>(fresh, kept.size()));
  while (!text.empty()) {
    if (in_file_ >= kHalf) {
      if (rotated_) KeepHead(head);  // the older file goes
      rotated_ = std::rename(path_.c_str(), (path_ + kOlderLog).c_str()) == 0 || rotated_;
      in_file_ = 0;
    }
    const std::string_view piece = text.substr(0, kHalf - in_file_);
    lost_ = !Write(piece) || lost_;
    text.remove_prefix(piece.size());
  }
}

Status KeptLog::Finish(std::string_view kept, std::string_view head) {
  if (printed_ == 0 || (!lost_ && !rotated_)) return absl::OkStatus();
  const std::string older = path_ + kOlderLog;
  if (printed_ > kept.size()) {
    KeepHead(head);
    // Nothing twice: of little more than the end is all of it there.
    const uint64_t begin = printed_ - kept.size();
    if (begin < head.size()) {
      kept.remove_prefix(std::min<size_t>(head.size() - begin, kept.size()));
      RETURN_IF_ERROR(WriteFileAtomically(path_ + kLogHead, head));
    }
  }
  if (lost_) {
    unlink(older.c_str());
    return WriteFileAtomically(path_, kept);
  }
  // PATH stays the file that it is: somebody may be reading on in it.
  return WriteFileAtomically(older, kept.substr(0, kept.size() - std::min(in_file_, kept.size())));
}

}  // namespace crowdsurf::controller
