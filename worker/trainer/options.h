// Options: the command line of crowdsurf-trainer, parsed and checked.
//
// Everything that is wrong with the values is reported at once, one line a flag; the program then
// exits 2 having started nothing. Pure apart from printing help.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "worker/trainer/task.h"
#include "worker/trainer/training.h"

namespace crowdsurf::trainer {

enum class Command { kCharlm, kMlp, kEvaluate, kSample };

struct TrainerOptions {
  Command command = Command::kCharlm;
  std::vector<std::string> texts;  // files and directories
  uint64_t split_seed = 1;         // of text: which blocks are held out
  std::string sample;              // beginning of the fortune to make up
  bool wants_sample = false;
  std::string model;  // evaluate, sample: file to read
  std::string load;   // charlm, mlp: file to start from
  std::string save;   // charlm, mlp: file to write at the end
  std::string json;   // charlm, mlp: file for the summary
  CharTaskOptions charlm;
  DigitTaskOptions mlp;
  DigitOptions digits;
  size_t shards = 1;            // label-sorted parts of the digits
  std::optional<size_t> shard;  // this worker's; default: the index in its name
  TrainingOptions training;
  LoopOptions loop;
};

// nullopt: help was asked for and printed. InvalidArgument: every violation, one a line.
StatusOr<std::optional<TrainerOptions>> ParseOptions(int argc, const char* const* argv);

// "100ms", "1.5s", "2m", "1h"; a bare number is seconds. nullopt: not a duration, or negative.
std::optional<Duration> ParseDuration(std::string_view text);

// The worker's index, from a name like charlm-3-1 (job, index, incarnation); nullopt: no such name.
std::optional<size_t> WorkerIndexOf(std::string_view worker);

}  // namespace crowdsurf::trainer
