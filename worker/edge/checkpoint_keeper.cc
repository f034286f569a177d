#include "worker/edge/checkpoint_keeper.h"

#include <chrono>

namespace crowdsurf::worker {

CheckpointKeeper::CheckpointKeeper(CheckpointStore& store, std::string folder,
                                   AgentMetrics& metrics,
                                   std::function<void(const Job&, bool ok)> done, Logger log)
    : store_(store),
      folder_(std::move(folder)),
      metrics_(metrics),
      done_(std::move(done)),
      log_(log.For("checkpoint")),
      thread_([this] { Loop(); }) {}

CheckpointKeeper::~CheckpointKeeper() {
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
    const bool ok = Write(**job);
    (ok ? metrics_.checkpoints : metrics_.checkpoints_failed).Add();
    done_(**job, ok);
  }
}

bool CheckpointKeeper::Write(const Job& job) {
  Status status = store_.Write(job.info, job.average, job.opaque);
  if (status.ok()) {
    log_.Info("checkpoint written", {{"averaging", job.info.averaging}});
  } else {
    log_.Error("checkpoint not written", {{"error", status.ToString()}});
  }
  if (!job.final_model) return status.ok();
  const StatusOr<bool> wrote =
      store_.WriteModel(folder_ + "/model.safetensors", job.info.tensors, job.average,
                        {{"job", job.info.job}, {"averaging", absl::StrCat(job.info.averaging)}});
  if (!wrote.ok()) log_.Error("model not written", {{"error", wrote.status().ToString()}});
  if (wrote.ok() && *wrote) log_.Info("model written", {{"folder", folder_}});
  return status.ok() && wrote.ok();
}

}  // namespace crowdsurf::worker
