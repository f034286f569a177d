// CheckpointFile: the bytes of one checkpoint, written, read and verified.
//
// A preamble (magic, version, the header's length and SHA-256), the header (what it is, and the
// hashes of all that follows), the last committed average as float32, an outer optimizer's
// velocity, if there is one, and one trainer's opaque state. So each byte of a file is under a
// hash, and a file that is half there does not verify. Which files a folder keeps: checkpoint.h.
// Blocking; any thread; memory of the average, the rest is mapped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/status.h"
#include "worker/core/link/link_layout.h"
#include "worker/core/view/averaging_id.h"

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
Bytes EncodeCheckpointHead(const CheckpointHeader& header);

// What a file says of itself, and where the rest of it lies.
struct CheckpointContents {
  CheckpointHeader header;
  ByteView average, velocity, opaque;  // of the file that was given; not verified
};
// Verifies the header alone. InvalidArgument: this is no checkpoint, or of another version;
// DataLoss: it is cut short or broken, in words that go behind a path.
StatusOr<CheckpointContents> ReadCheckpointHead(ByteView file);

// A whole file, mapped read-only: private memory does not grow with the model. Empty: there is
// none.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  ~MappedFile();
  ByteView bytes() const { return bytes_; }

 private:
  ByteView bytes_;
};

struct VerifiedCheckpoint {
  CheckpointInfo info;
  std::vector<float> average;
};
// Every hash of the file verifies. Errors as ReadCheckpointHead, with the path; NotFound.
StatusOr<VerifiedCheckpoint> VerifyCheckpoint(const std::string& path);

// Of the averaging with that number; names sort as numbers do.
std::string CheckpointName(AveragingId averaging);
// Names of checkpoints in the folder, newest first; empty: there is none, or no folder.
std::vector<std::string> CheckpointsIn(const std::string& folder);
// Whether a temporary file of that name is a checkpoint's.
bool IsTemporaryCheckpoint(std::string_view name);

}  // namespace crowdsurf::worker
