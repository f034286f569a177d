// Checkpoint: the job's state on a disk, for when every worker is gone at once.
//
// The steward writes one file a checkpoint, `checkpoint-NUMBER-LINEAGE.crowdsurf`
// (checkpoint_file.h), by temporary name, fsync, rename, and seals it (checkpoint_seal.h). Jobs,
// models and trainers may share a folder: of its files those of the same job and model count, and
// no other is read further, pruned, or a reason to prune. What an agent of this job has sealed
// comes first, then the most samples and the highest number in a head: of two lineages the one in
// which more was trained, since one that averages alone has the higher numbers. A file is believed
// only if every hash verifies; an unreadable one is skipped and counted. Blocking: call from a
// thread that may wait.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"
#include "worker/core/state/state_values.h"
#include "worker/edge/link/held_state.h"
#include "worker/edge/state/checkpoint_file.h"
#include "worker/edge/state/checkpoint_seal.h"
#include "worker/edge/state/outer_memory.h"

namespace crowdsurf::worker {

// The writer, and how often it writes.
struct CheckpointBy {
  std::string lineage = {};        // hex digits; empty: not known
  Duration interval = Duration();  // of the job's checkpoints
};

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

  // `writer`: a name of this process, for temporary files. `retain` >= 1. Without `seals`, as in
  // tests, no file needs one.
  CheckpointStore(std::string folder, std::string writer, size_t retain, Logger log,
                  MetricRegistry& metrics, std::optional<CheckpointSeals> seals = std::nullopt);

  // Writes, then removes those of this job and model that it makes superfluous: of sealed ones all
  // but the newest `retain`, and what is older than these without a seal. Another lineage that
  // still writes keeps what it has sealed: it has written within three intervals, or ten minutes,
  // of now as the folder's files tell it. info.elements (of the average) and opaque_bytes are taken
  // from the spans. Errors: ResourceExhausted (disk full), NotFound (no folder), Internal. Without
  // a seal, which is logged, the file is there.
  Status Write(CheckpointInfo info, const StateValues& state, ByteView opaque,
               const CheckpointBy& by = {});

  // Reads the furthest checkpoint of the job and model that verifies whole: the copies are
  // verified, so each byte is hashed once. What is in `average` when none is found means nothing.
  // NotFound: there is none; FailedPrecondition: the job's are of another model. Pre:
  // average.size() == elements.
  StatusOr<FoundCheckpoint> Restore(const CheckpointWanted& wanted, std::span<float> average,
                                    const MakeRoom& make_room);

  // The furthest average of the same job and model that another agent has sealed, by samples and
  // then by number, if it is further than `info`'s and verifies. Memory of an average.
  std::optional<VerifiedCheckpoint> NewerThan(const CheckpointInfo& info) const;

  const std::string& folder() const { return folder_; }
  const std::string& writer() const { return writer_; }

 private:
  struct Kept {
    std::string path;
    Digest head = {};
    AveragingId averaging = {};
    double job_samples = 0;
    bool sealed = false;
  };
  struct Folder {
    std::vector<Kept> ours;  // the sealed ones first, of each kind the furthest first
    std::string other;       // one of the job and of another model; empty: there is none
    std::vector<std::string> unreadable;
  };
  Folder Look(const std::string& job, const Digest& schema) const;
  static std::optional<CheckpointFile> Reopen(const Kept& kept);
  void Seal(const std::string& path, const Digest& head);
  void NotePassedOver(const Folder& folder, const Kept& taken);
  void Prune(const CheckpointInfo& written, const std::string& path, const CheckpointBy& by);
  void RemoveStale();

  const std::string folder_, writer_;
  const size_t retain_;
  const Logger log_;
  const std::optional<CheckpointSeals> seals_;
  Counter& written_;
  Counter& failed_;
  Counter& unreadable_;
  Counter& unsealed_;
};

}  // namespace crowdsurf::worker
