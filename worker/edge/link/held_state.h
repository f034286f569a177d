// Held state: a trainer's opaque state in a file that has no name.
//
// It lies in the link's folder, so in memory, and only this process can reach it: what was verified
// once stays as it is. Readers have a mapping, so that a gigabyte costs the agent no copy, and the
// pages go with the last owner. One writer, then any number of readers on any thread.
#pragma once

#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/id.h"
#include "base/status.h"
#include "worker/edge/link/link_folder.h"

namespace crowdsurf::worker {

class HeldState {
 public:
  // Of `bytes` bytes, zeros so far. ResourceExhausted, Internal.
  static StatusOr<std::unique_ptr<HeldState>> Make(const LinkFolder& folder, uint64_t bytes);
  HeldState(const HeldState&) = delete;
  ~HeldState();

  // Takes the space now, so that no write lacks it. ResourceExhausted.
  Status Reserve();
  // Pre: it fits. ResourceExhausted, Internal.
  Status Write(uint64_t offset, ByteView piece);
  // Pre: every byte was written.
  ByteView bytes() const { return view_; }
  int fd() const { return file_.get(); }

 private:
  HeldState(OwnedFd file, ByteView view) : file_(std::move(file)), view_(view) {}
  const OwnedFd file_;
  const ByteView view_;
};

struct HeldOpaque {
  std::shared_ptr<const HeldState> state;
  Digest hash;        // Sha256 of its bytes
  uint64_t step = 0;  // averaging of the parameters it goes with; 0: not said
};

}  // namespace crowdsurf::worker
