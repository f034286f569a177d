#include "simulator/descent/descent_trainer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace crowdsurf::simulator {

Quadratic Quadratic::Draw(uint32_t dimensions, double spread, Rng rng) {
  Quadratic loss;
  for (uint32_t k = 0; k < dimensions; ++k) {
    loss.h.push_back(0.25 + 0.75 * rng.UniformDouble());
    loss.c.push_back(spread * rng.Normal());
  }
  return loss;
}

std::vector<double> OptimumOf(const std::vector<const Quadratic*>& losses) {
  CHECK(!losses.empty());
  std::vector<double> optimum;
  for (size_t k = 0; k < losses.front()->c.size(); ++k) {
    double weighted = 0, total = 0;
    for (const Quadratic* loss : losses) {
      weighted += loss->h[k] * loss->c[k];
      total += loss->h[k];
    }
    optimum.push_back(weighted / total);
  }
  return optimum;
}

bool DescentTrainer::Deliver(worker::AveragingId ticket, std::span<const float> outbox,
                             std::span<const float> result) {
  if (in_use_ != ticket) return false;
  change_.emplace(outbox.size());
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

void DescentTrainer::Step() {
  for (size_t k = 0; k < x_.size(); ++k) {
    const double x = static_cast<double>(x_[k]);
    x_[k] = static_cast<float>(x - rate_ * lr_scale_ * loss_.h[k] * (x - loss_.c[k]));
  }
}

std::optional<worker::AveragingId> DescentTrainer::StepDone(std::span<float> outbox) {
  CHECK(!waiting_);
  Step();
  if (planted_) Step();
  ++steps_;
  if (change_) Apply();
  if (!wanted_ || in_use_) return std::nullopt;
  std::copy(x_.begin(), x_.end(), outbox.begin());
  in_use_ = std::exchange(wanted_, std::nullopt);
  waiting_ = overlap_ == worker::Overlap::kBlocking;
  return in_use_;
}

}  // namespace crowdsurf::simulator
