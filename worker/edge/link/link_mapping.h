// Link mapping: the `tensors` file in this process' memory, and the futex bells on its words.
//
// Used by the agent's LinkServer and by the trainer's LinkClient; each owns its own mapping.
// Sharing is by inode, so a file that is re-opened is the same memory, and a mapping outlives an
// unlink. Linux futexes on a shared file work between processes and containers without any set-up.
// The file has huge pages where the kernel gives them: an averaging passes over it several times.
// Moves, never copies. Whoever owns a mapping decides which thread may touch which region.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "base/time.h"
#include "worker/core/link/link_layout.h"

namespace crowdsurf::worker {

class LinkMapping {
 public:
  // Opens an existing link for reading and writing, without O_CREAT (fs.protected_regular), and
  // checks what it says of itself. Errors: NotFound, DataLoss, Internal with errno's words.
  static StatusOr<LinkMapping> Open(const std::string& path);
  // The same of an open file, which stays the caller's; `path` is for messages.
  static StatusOr<LinkMapping> Open(int fd, const std::string& path);
  // Makes the new, open file `fd` for `geometry`: mode 0666, space allocated, header and table
  // written. ResourceExhausted names spec.agent.sharedMemory and the value to set. Cost: clears the
  // file, and asks for huge pages for at most four seconds.
  static StatusOr<LinkMapping> Create(int fd, const std::string& path,
                                      const LinkGeometry& geometry);

  LinkMapping(LinkMapping&& other) noexcept;
  LinkMapping& operator=(LinkMapping&& other) noexcept;
  ~LinkMapping();

  LinkControl& control() const { return *reinterpret_cast<LinkControl*>(base_); }
  std::span<float> outbox() const { return Region(geometry_.outbox_offset); }
  std::span<float> inbox(int which) const {
    return Region(geometry_.inbox_offset[static_cast<size_t>(which)]);
  }
  std::span<uint8_t> index_sets() const {
    return {base_ + geometry_.index_offset, geometry_.index_bytes};
  }
  const LinkGeometry& geometry() const { return geometry_; }
  uint64_t inode() const { return inode_; }

 private:
  LinkMapping() = default;
  static StatusOr<LinkMapping> Map(int fd, LinkGeometry geometry);
  void AskForHugePages(int fd);
  std::span<float> Region(uint64_t offset) const {
    return {reinterpret_cast<float*>(base_ + offset), geometry_.elements};
  }

  uint8_t* base_ = nullptr;
  uint64_t inode_ = 0;
  LinkGeometry geometry_;
};

// Adds one and wakes whoever waits, in any process.
void RingBell(std::atomic<uint32_t>& bell);
// Returns when `bell` is no longer `seen`, at the time-out, or spuriously.
void WaitBell(const std::atomic<uint32_t>& bell, uint32_t seen, Duration most);

}  // namespace crowdsurf::worker
