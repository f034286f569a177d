// LinkHook: a training loop as a worker of a Crowdsurf job, over the trainer link.
//
// Registers the model's tensors (and the optimizer's moments, for jobs that average those), takes
// seed and name from the agent, adopts the job's state where there is one, and at every step
// boundary publishes and applies what the agent asks for, and takes the units to train next; see
// docs/trainer-link.md. What a joiner cannot average travels as the opaque state: Training::Save
// and Load. One thread owns it, the one that trains; the Training that it was started with must
// outlive it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "worker/edge/link/link_client.h"
#include "worker/trainer/training.h"

namespace crowdsurf::trainer {

class LinkHook : public StepHook {
 public:
  // Waits until the agent in `dir` answers. `metrics`: names of what OnMetrics will report.
  static StatusOr<std::unique_ptr<StepHook>> Connect(std::string dir,
                                                     std::vector<std::string> metrics,
                                                     Duration patience);

  StatusOr<StepDecision> Start(Training& training) override;
  StatusOr<StepDecision> OnStep(Training& training, const BatchResult& batch) override;
  void OnMetrics(std::span<const Metric> metrics) override;
  void OnStopped() override;

 private:
  LinkHook(std::unique_ptr<worker::LinkClient> client, std::vector<std::string> metrics,
           Duration patience)
      : client_(std::move(client)), metrics_(std::move(metrics)), patience_(patience) {}

  // The averaged vector: the parameters themselves, or a copy with the moments behind them.
  std::span<float> Gather(Training& training);
  void Scatter(Training& training);
  worker::StepOutcome GradientDone(Training& training, const BatchResult& batch);
  StatusOr<StepDecision> Decide(Training& training, const worker::StepOutcome& outcome);

  std::unique_ptr<worker::LinkClient> client_;
  std::vector<std::string> metrics_;
  Duration patience_;
  bool with_moments_ = false;
  bool gradients_ = false;       // are averaged in this job
  std::vector<float> gathered_;  // empty without moments
  bool agent_lost_ = false;
};

}  // namespace crowdsurf::trainer
