// Model file: `model.safetensors`, what a job leaves behind.
//
// Written by the steward at the end of the job, after its last checkpoint. Of two stewards for a
// moment the one with the newer average wins, whoever comes first: that is the newest one that an
// agent of the job has sealed (checkpoint_seal.h). What lies there already is not read, and
// replaced: a trainer may have put it there. A reader sees the old file or the new one, never a
// part. Blocking: call from a thread that may wait. Any number of processes on one folder, also on
// file systems without locks (then of two at the same instant the last one stands).
#pragma once

#include <span>

#include "base/status.h"
#include "worker/edge/state/checkpoint.h"

namespace crowdsurf::worker {

inline constexpr char kModelFile[] = "model.safetensors";

// In the store's folder, with the tensors of info.tensors that a model has (InModel); job and
// averaging stand in its metadata. False: another agent has sealed a newer average, and the model
// is that one. Cost: the file is written and synced once. Errors: ResourceExhausted (disk full;
// nothing is left behind), NotFound (no folder), Internal.
StatusOr<bool> WriteModelFile(CheckpointStore& store, const CheckpointInfo& info,
                              std::span<const float> values);

}  // namespace crowdsurf::worker
