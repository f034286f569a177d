// DescentTrainer: a trainer that takes the steps of a model, and keeps the rules of the trainer
// link at each step boundary (docs/trainer-link.md, "At every step boundary").
//
// Parameters are float32 as in the built-in trainer. It knows no time: its node says when a step is
// over. Blocking: after a snapshot no step begins until its result or its
// release is there. Owner: one DescentNode; single sequence. Nothing that others fill: one request,
// one result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "simulator/descent/descent_model.h"
#include "worker/core/view/averaging_choices.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::simulator {

class DescentTrainer {
 public:
  // gathers: the job averages gradients (docs/gradients.md).
  DescentTrainer(std::unique_ptr<DescentModel> model, worker::Overlap overlap, bool gathers = false)
      : model_(std::move(model)), overlap_(overlap), gathers_(gathers), x_(model_->elements()) {
    model_->Start(x_);
  }

  // ---- what the agent writes
  void Request(worker::AveragingId ticket) { wanted_ = ticket; }
  void SetLrScale(double scale) { lr_scale_ = scale; }
  // IST: units that averaging `by` has dealt; they wait for TakeUnits.
  void TellUnits(worker::AveragingId by, worker::IndexSets sets) {
    told_.emplace(by, std::move(sets));
  }
  // The state of `averaging`. True: it waited, and goes on.
  bool Adopt(worker::AveragingId averaging, std::span<const float> values);
  // Gradients: samples of a step. True: it waited, and has to gather more.
  bool SetShare(uint64_t samples);
  // The result of snapshot `ticket`. True: it was waited for and is applied; else it is at the next
  // boundary.
  bool Deliver(worker::AveragingId ticket, std::span<const float> outbox,
               std::span<const float> result);
  // True: it was waited for.
  bool Release(worker::AveragingId ticket);

  // ---- a step begins
  // With the units that it was told last, after the result of what was trained on others.
  void TakeUnits();
  double step_share() const { return model_->step_share(); }

  // ---- a step is over
  // Takes it, applies what is there; when a snapshot is wanted, it is in `outbox` and its ticket is
  // the answer.
  std::optional<worker::AveragingId> StepDone(std::span<float> outbox);

  // Gradients: where it waits with its share, and a snapshot is wanted, as StepDone.
  std::optional<worker::AveragingId> Publish(std::span<float> outbox);

  bool gathers() const { return gathers_; }
  uint64_t gathered() const { return gathered_; }            // samples of the next step
  worker::AveragingId step() const { return step_; }         // that its parameters are of
  bool holds_share() const { return waiting_ && !in_use_; }  // and is not asked for it
  bool waiting() const { return waiting_; }                  // for the result of its snapshot
  uint64_t steps() const { return steps_; }
  const std::vector<float>& model() const { return x_; }
  // As the last result left it.
  const std::vector<float>& averaged() const { return averaged_; }
  uint64_t results() const { return results_; }
  double lr_scale() const { return lr_scale_; }
  worker::AveragingId units() const { return units_; }  // that dealt what it trains; 0: all of it
  void PlantSecondStep() { planted_ = true; }

 private:
  void Apply();
  void Gather();

  std::unique_ptr<DescentModel> model_;
  const worker::Overlap overlap_;
  const bool gathers_;
  uint64_t share_ = 1;
  uint64_t gathered_ = 0;
  std::vector<float> mean_, gradient_;
  worker::AveragingId step_;
  bool planted_ = false;
  double lr_scale_ = 1;
  std::vector<float> x_;
  std::vector<float> averaged_;
  uint64_t steps_ = 0;
  uint64_t results_ = 0;
  std::optional<worker::AveragingId> wanted_;
  std::optional<worker::AveragingId> in_use_;  // the ticket of the snapshot in the outbox
  std::optional<std::vector<float>> change_;   // result - outbox, not applied yet
  std::optional<std::pair<worker::AveragingId, worker::IndexSets>> told_;
  worker::AveragingId units_;
  bool waiting_ = false;
};

}  // namespace crowdsurf::simulator
