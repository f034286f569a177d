// Checkpoint: the job's state on a disk, for when every worker is gone at once.
//
// The steward writes one file a checkpoint, `checkpoint-NUMBER.crowdsurf` (checkpoint_file.h), by
// temporary name, fsync, rename. A file is believed only if every hash verifies; the one with the
// highest averaging number wins, an unreadable one is skipped and counted. Several writers may
// share a folder (double steward, one claim for all workers). Blocking: call from a thread that may
// wait.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "worker/core/state/state_values.h"
#include "worker/edge/link/held_state.h"
#include "worker/edge/state/checkpoint_file.h"
#include "worker/edge/state/outer_memory.h"

namespace crowdsurf::worker {

// Of which job and which model a checkpoint is looked for.
struct CheckpointWanted {
  std::string job;
  Digest schema;
  uint64_t elements = 0;
};

struct FoundCheckpoint {
  std::string path;
  CheckpointInfo info;
  std::optional<HeldOpaque> opaque;
  HeldVelocity velocity;
};

class CheckpointStore {
 public:
  using MakeRoom = std::function<StatusOr<std::unique_ptr<HeldState>>(uint64_t bytes)>;

  // `writer`: a name of this process, for temporary files. `retain` >= 1.
  CheckpointStore(std::string folder, std::string writer, size_t retain, Logger log,
                  MetricRegistry& metrics);

  // Writes, then removes all but the newest `retain`. info.elements (of the average) and
  // opaque_bytes are taken from the spans. Errors: ResourceExhausted (disk full), NotFound (no
  // folder), Internal.
  Status Write(CheckpointInfo info, const StateValues& state, ByteView opaque);

  // Reads the newest checkpoint of the job that verifies whole: the copies are verified, so each
  // byte is hashed once. What is in `average` when none is found means nothing. NotFound: there is
  // none; FailedPrecondition: the newest is of another model. Pre: average.size() == elements.
  StatusOr<FoundCheckpoint> Restore(const CheckpointWanted& wanted, std::span<float> average,
                                    const MakeRoom& make_room);

  const std::string& folder() const { return folder_; }
  const std::string& writer() const { return writer_; }

 private:
  void Prune();

  const std::string folder_, writer_;
  const size_t retain_;
  const Logger log_;
  Counter& written_;
  Counter& failed_;
  Counter& unreadable_;
};

}  // namespace crowdsurf::worker
