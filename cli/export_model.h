// ExportModel: a job's newest checkpoint as a model file that Hugging Face's libraries read.
//
// For a job that still runs, or that ended without its model: the checkpoint is verified whole, and
// never changed. The file appears whole or not at all. Blocking; memory of the model; any thread.
// Format: huggingface/safetensors, README "Format"; transformers wants the metadata format=pt.
#pragma once

#include <string>

#include "base/status.h"

namespace crowdsurf::cli {

struct ExportRequest {
  std::string from;  // a job's name; with a slash or .crowdsurf at its end a checkpoint's path,
                     // or that of a folder of checkpoints
  std::string state_dir;  // of the job, where its run was given one
  std::string out;        // the file to write, or the folder for model.safetensors
};

struct ExportedModel {
  std::string path, checkpoint, job;
  uint64_t averaging = 0, parameters = 0;
  double job_samples = 0;
};

// NotFound: no such job, checkpoint or folder; InvalidArgument: it is no checkpoint; AlreadyExists:
// the file to write is there; DataLoss: the checkpoint is half there or broken; ResourceExhausted:
// the disk is full.
StatusOr<ExportedModel> ExportModel(const ExportRequest& request);

}  // namespace crowdsurf::cli
