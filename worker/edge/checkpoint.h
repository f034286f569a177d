// Checkpoint: the job's state on a disk, for when every worker is gone at once.
//
// The steward writes one file a checkpoint, `checkpoint-NUMBER.crowdsurf`: a hashed header (what it
// is), the last committed average as float32, one trainer's opaque state; all by temporary name,
// fsync, rename. A file is believed only if every hash verifies; the one with the highest averaging
// number wins, an unreadable one is skipped and counted. Several writers may share a folder (double
// steward, one claim for all workers). Blocking: call from a thread that may wait.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "worker/core/link_layout.h"

namespace crowdsurf::worker {

struct CheckpointInfo {
  std::string job;
  uint64_t averaging = 0;  // number of the committed average
  Digest committed;        // its root, as the round decided it
  double job_samples = 0;
  double job_seconds = 0;  // that the job had trained
  uint64_t view_epoch = 0;
  Digest schema;  // of `tensors`
  std::vector<LinkTensor> tensors;
  uint64_t elements = 0;
  uint64_t opaque_bytes = 0;
  bool operator==(const CheckpointInfo&) const = default;
};

struct FoundCheckpoint {
  std::string path;
  CheckpointInfo info;
};

class CheckpointStore {
 public:
  // `writer`: a name of this process, for temporary files. `retain` >= 1.
  CheckpointStore(std::string folder, std::string writer, size_t retain, Logger log,
                  MetricRegistry& metrics);

  // Writes, then removes all but the newest `retain`. info.elements and opaque_bytes are taken from
  // the spans. Errors: ResourceExhausted (disk full), NotFound (no folder), Internal.
  Status Write(CheckpointInfo info, std::span<const float> average, ByteView opaque);

  // The newest checkpoint of `job` that verifies whole. NotFound when there is none. Reads every
  // byte of the ones it looks at.
  StatusOr<FoundCheckpoint> FindNewest(const std::string& job);
  // Its contents. Pre: average.size() == info.elements. DataLoss when it changed since it was
  // found.
  StatusOr<Bytes> Load(const FoundCheckpoint& found, std::span<float> average);

 private:
  std::vector<std::string> NumbersDescending() const;  // names in the folder, newest first
  void Prune();

  const std::string folder_, writer_;
  const size_t retain_;
  const Logger log_;
  Counter& written_;
  Counter& failed_;
  Counter& unreadable_;
};

}  // namespace crowdsurf::worker
