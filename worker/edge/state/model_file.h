// Model file: `model.safetensors`, what a job leaves behind.
//
// Written by the steward at the end of the job. Of two stewards for a moment the one with the newer
// average wins, whoever comes first; a job that was resumed and trained on replaces its older
// model; a reader sees the old file or the new one, never a part. Blocking: call from a thread that
// may wait. Any number of processes on one folder, also on file systems without locks (then of two
// at the same instant the last one stands).
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "worker/edge/state/checkpoint.h"

namespace crowdsurf::worker {

// `path` with the tensors of info.tensors that a model has (InModel); job and averaging stand in
// its metadata. A model of the same job that is as new or newer is left alone; an older one, one of
// another job and what is no model is replaced. True when this call wrote it. `writer`: a name of
// this process. Cost: the file is written and synced once. Errors: ResourceExhausted (disk full;
// nothing is left behind), NotFound (no folder), Internal.
StatusOr<bool> WriteModelFile(const std::string& path, const std::string& writer,
                              const CheckpointInfo& info, std::span<const float> values);

}  // namespace crowdsurf::worker
