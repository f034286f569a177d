// CheckpointFile: the bytes of one checkpoint, written, read and verified.
//
// A preamble (magic, version, the header's length and SHA-256), the header (what it is, and the
// hashes of all that follows), the last committed average as float32, an outer optimizer's
// velocity, if there is one, and one trainer's opaque state. So each byte of a file is under a
// hash, and a file that is half there does not verify. A trainer may write to the volume at any
// time: sizes are compared before memory is taken, and all is read into memory of our own before it
// is hashed. A file that shrinks meanwhile is an error. Which files a folder keeps: checkpoint.h.
// Who wrote one: checkpoint_seal.h. Blocking; any thread.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/status.h"
#include "worker/core/link/link_layout.h"
#include "worker/core/view/averaging_id.h"
#include "worker/edge/link/owned_fd.h"

namespace crowdsurf::worker {

struct CheckpointInfo {
  std::string job;
  AveragingId averaging = {};  // number of the committed average
  Digest committed;            // its root, as the round decided it
  double job_samples = 0;
  double job_seconds = 0;  // that the job had trained
  uint64_t view_epoch = 0;
  Digest schema;  // of `tensors`
  std::vector<LinkTensor> tensors;
  uint64_t elements = 0;
  uint64_t opaque_bytes = 0;
  Bytes ledger = {};  // of the leases (LeaseLedger), as bytes; empty: the job deals none
  bool operator==(const CheckpointInfo&) const = default;
};

struct CheckpointHeader {
  CheckpointInfo info;
  Digest average_hash, opaque_hash;
  std::optional<Digest> velocity_hash;
};

// The preamble and the header, which the average, the velocity and the opaque state follow.
struct CheckpointHead {
  Bytes bytes;
  Digest hash;  // of the header, which has the hashes of all that follows: it names the file
};
CheckpointHead EncodeCheckpointHead(const CheckpointHeader& header);

// A file whose head verifies.
class CheckpointFile {
 public:
  // NotFound: there is no file. InvalidArgument: this is no checkpoint, or of another version.
  // DataLoss: it is cut short or broken. In words that go behind the path.
  static StatusOr<CheckpointFile> Open(const std::string& path);

  const CheckpointHeader& header() const { return header_; }
  const CheckpointInfo& info() const { return header_.info; }
  const Digest& head_hash() const { return head_hash_; }

  // Each reads that part and verifies it. DataLoss, in words as above; what was read then means
  // nothing. Pre: the span is of that size; there is a velocity.
  Status ReadAverage(std::span<float> into) const;
  Status ReadVelocity(std::span<float> into) const;
  // In pieces, in order, to `sink`, whose error it returns; verified when all of them came.
  using Sink = std::function<Status(uint64_t offset, ByteView piece)>;
  Status ReadOpaque(const Sink& sink) const;
  // The same without keeping anything: for a look at the whole file. Memory of one piece.
  Status Verify() const;

 private:
  CheckpointFile(OwnedFd file, CheckpointHeader header, const Digest& head_hash, uint64_t begin)
      : file_(std::move(file)), header_(std::move(header)), head_hash_(head_hash), begin_(begin) {}
  Status ReadFloats(uint64_t offset, std::span<float> into, const Digest& hash,
                    const char* what) const;
  Status ReadPart(uint64_t offset, uint64_t bytes, const Digest& hash, const char* what,
                  const Sink& sink) const;
  uint64_t average_bytes() const { return header_.info.elements * sizeof(float); }
  uint64_t opaque_begin() const;

  OwnedFd file_;
  CheckpointHeader header_;
  Digest head_hash_;
  uint64_t begin_;  // of the average
};

struct VerifiedCheckpoint {
  CheckpointInfo info;
  std::vector<float> average;
};
// Every hash of the file verifies. Errors as CheckpointFile's, with the path.
StatusOr<VerifiedCheckpoint> VerifyCheckpoint(const std::string& path);

// The name of the averaging with that number, in that lineage (hex digits; empty: of none); names
// sort as numbers do. Two lineages have the same numbers, and must not write over each other.
std::string CheckpointName(AveragingId averaging, std::string_view lineage = {});
// The lineage in such a name.
std::string_view LineageOfCheckpoint(std::string_view name);
// Names of checkpoints in the folder, newest first; empty: there is none, or no folder. Anybody may
// put files there: of more than kMaxCheckpointFiles the newest by name.
inline constexpr size_t kMaxCheckpointFiles = 4096;
std::vector<std::string> CheckpointsIn(const std::string& folder);
// Whether a temporary file of that name is a checkpoint's.
bool IsTemporaryCheckpoint(std::string_view name);

}  // namespace crowdsurf::worker
