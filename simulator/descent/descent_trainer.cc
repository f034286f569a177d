#include "simulator/descent/descent_trainer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace crowdsurf::simulator {

bool DescentTrainer::Deliver(worker::AveragingId ticket, std::span<const float> outbox,
                             std::span<const float> result) {
  if (in_use_ != ticket) return false;
  change_.emplace(outbox.size());
  // Kept as a change: the model may go on until the next boundary.
  for (size_t k = 0; k < outbox.size(); ++k) (*change_)[k] = result[k] - outbox[k];
  if (!std::exchange(waiting_, false)) return false;
  Apply();
  return true;
}

bool DescentTrainer::Release(worker::AveragingId ticket) {
  if (in_use_ != ticket) return false;
  in_use_.reset();
  return std::exchange(waiting_, false);
}

void DescentTrainer::Apply() {
  for (size_t k = 0; k < x_.size(); ++k) x_[k] += (*change_)[k];
  change_.reset();
  in_use_.reset();
  averaged_ = x_;
  ++results_;
}

std::optional<worker::AveragingId> DescentTrainer::StepDone(std::span<float> outbox) {
  CHECK(!waiting_);
  model_->Step(lr_scale_, x_);
  if (planted_) model_->Step(lr_scale_, x_);
  ++steps_;
  if (change_) Apply();
  // The result first, so that a snapshot has all results before it.
  if (!wanted_ || in_use_) return std::nullopt;
  std::copy(x_.begin(), x_.end(), outbox.begin());
  in_use_ = std::exchange(wanted_, std::nullopt);
  waiting_ = overlap_ == worker::Overlap::kBlocking;
  return in_use_;
}

}  // namespace crowdsurf::simulator
