#include "simulator/descent/descent_trainer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace crowdsurf::simulator {

bool DescentTrainer::Deliver(worker::AveragingId ticket, std::span<const float> outbox,
                             std::span<const float> result) {
  if (in_use_ != ticket) return false;
  if (gathers_) {
    model_->Apply(result, x_);
    if (planted_) model_->Apply(result, x_);
    step_ = ticket;
    gathered_ = 0;
    averaged_ = x_;
    ++results_;
    in_use_.reset();
    return std::exchange(waiting_, false);
  }
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
  const bool waited = waiting_;
  // What it has gathered is good for the next averaging.
  waiting_ = gathers_ && gathered_ >= share_;
  return waited && !waiting_;
}

bool DescentTrainer::Adopt(worker::AveragingId averaging, std::span<const float> values) {
  x_.assign(values.begin(), values.end());
  if (!gathers_) return false;
  step_ = averaging;
  gathered_ = 0;
  return std::exchange(waiting_, false);
}

bool DescentTrainer::SetShare(uint64_t samples) {
  share_ = samples;
  if (!holds_share() || gathered_ >= share_) return false;
  waiting_ = false;
  return true;
}

void DescentTrainer::TakeUnits() {
  if (!told_) return;
  units_ = told_->first;
  model_->TrainUnits(told_->second);
  told_.reset();
}

// As the built-in trainer's client does (worker/edge/link/link_client_gradients.cc).
void DescentTrainer::Gather() {
  gradient_.resize(x_.size());
  const uint64_t samples = model_->Gradient(x_, gradient_);
  if (gathered_ == 0) mean_.assign(x_.size(), 0);
  gathered_ += samples;
  const auto part =
      static_cast<float>(static_cast<double>(samples) / static_cast<double>(gathered_));
  for (size_t k = 0; k < mean_.size(); ++k) mean_[k] += (gradient_[k] - mean_[k]) * part;
}

std::optional<worker::AveragingId> DescentTrainer::Publish(std::span<float> outbox) {
  const bool publishes = wanted_ && !in_use_ && gathered_ > 0;
  if (publishes) {
    std::copy(mean_.begin(), mean_.end(), outbox.begin());
    in_use_ = std::exchange(wanted_, std::nullopt);
  }
  waiting_ = in_use_ || gathered_ >= share_;
  return publishes ? in_use_ : std::nullopt;
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
  if (gathers_) {
    Gather();
    ++steps_;
    return Publish(outbox);
  }
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
