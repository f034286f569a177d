#include "worker/edge/state/checkpoint_keeper.h"

#include <chrono>

#include "worker/edge/state/model_file.h"

namespace crowdsurf::worker {

CheckpointKeeper::CheckpointKeeper(CheckpointStore& store, AgentMetrics& metrics,
                                   std::function<void(const Job&, const Status&)> done, Logger log)
    : store_(store),
      metrics_(metrics),
      done_(std::move(done)),
      log_(log.For("checkpoint")),
      thread_([this] { Loop(); }) {}

CheckpointKeeper::~CheckpointKeeper() {
  // The thread takes what was accepted, then finds the mailbox closed and ends.
  jobs_.Close();
  thread_.join();
}

bool CheckpointKeeper::Submit(Job job) {
  const bool taken = jobs_.Post(std::make_unique<Job>(std::move(job)));
  if (!taken) metrics_.checkpoints_failed.Add();
  return taken;
}

void CheckpointKeeper::Loop() {
  while (true) {
    const auto job = jobs_.Take(std::chrono::steady_clock::time_point::max());
    if (!job) return;
    const Status written = Write(**job);
    (written.ok() ? metrics_.checkpoints : metrics_.checkpoints_failed).Add();
    done_(**job, written);
  }
}

Status CheckpointKeeper::Write(const Job& job) {
  Status status = store_.Write(job.info, {.average = job.average, .velocity = job.velocity},
                               job.opaque ? job.opaque->bytes() : ByteView(), job.by);
  if (status.ok()) {
    log_.Info("checkpoint written", {{"averaging", job.info.averaging.value()}});
  } else {
    log_.Error("checkpoint not written", {{"error", status.ToString()}});
  }
  if (!job.final_model) return status;
  // Also when the checkpoint failed: the model is what the job leaves behind.
  const StatusOr<bool> wrote = WriteModelFile(store_, job.info, job.average);
  if (!wrote.ok()) log_.Error("model not written", {{"error", wrote.status().ToString()}});
  if (wrote.ok())
    log_.Info("model written", {{"folder", store_.folder()}, {"own_average", *wrote}});
  return status.ok() ? wrote.status() : status;
}

}  // namespace crowdsurf::worker
