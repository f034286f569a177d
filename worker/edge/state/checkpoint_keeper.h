// Checkpoint keeper: writes checkpoints and the model file on a thread that may wait for a disk.
//
// The host hands over a copy of the average (the inbox will be written again) and the trainer's
// opaque state; the result comes back through the host's mailbox. Bounds: one write in progress and
// one waiting; a further one is refused, counted, and the next interval writes anyway. Methods from
// the host thread. Reading at start is done by the host itself, before anything runs.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mailbox.h"
#include "worker/edge/link/held_state.h"
#include "worker/edge/metrics/agent_metrics.h"
#include "worker/edge/state/checkpoint.h"

namespace crowdsurf::worker {

class CheckpointKeeper {
 public:
  struct Job {
    CheckpointInfo info;
    CheckpointBy by;
    std::vector<float> average;
    std::vector<float> velocity;              // of an outer optimizer; empty: none
    std::shared_ptr<const HeldState> opaque;  // nullptr: none
    bool final_model = false;                 // write model.safetensors as well
  };

  // `done` is called on the keeper's thread after each job, with the first error if there was one.
  // Everything referred to outlives the keeper.
  CheckpointKeeper(CheckpointStore& store, AgentMetrics& metrics,
                   std::function<void(const Job&, const Status&)> done, Logger log);
  ~CheckpointKeeper();  // finishes what was accepted

  [[nodiscard]] bool Submit(Job job);

 private:
  void Loop();
  Status Write(const Job& job);

  CheckpointStore& store_;
  AgentMetrics& metrics_;
  const std::function<void(const Job&, const Status&)> done_;
  const Logger log_;
  Mailbox<std::unique_ptr<Job>> jobs_{2};
  std::thread thread_;
};

}  // namespace crowdsurf::worker
