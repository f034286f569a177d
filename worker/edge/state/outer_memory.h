// OuterMemory: what strategies need beside the trainer's link and their own: kSpare, also what
// neighbours are sent from, kVelocity and kRest.
//
// Each is as long as the vector, made by its first use, and zeros then: that costs no time, since
// an agent that is busy for long is silent meanwhile. A velocity is shared with the thread that
// hashes it, which may outlive its use here; kSpare stays as long as the agent, for rounds that are
// over still serve from it. Host thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/edge/state/zeroed_floats.h"

namespace crowdsurf::worker {

using HeldVelocity = std::shared_ptr<ZeroedFloats>;  // nullptr: there is none, or zeros

class OuterMemory {
 public:
  std::span<float> Spare(uint64_t elements) {
    if (spare_ == nullptr || spare_->size() != elements) {
      if (spare_ != nullptr) earlier_.push_back(std::move(spare_));
      spare_ = std::make_unique<ZeroedFloats>(elements);
    }
    return *spare_;
  }
  std::span<float> Velocity(uint64_t elements) {
    if (velocity_ == nullptr || velocity_->size() != elements)
      velocity_ = std::make_shared<ZeroedFloats>(elements);
    return *velocity_;
  }
  std::span<float> Rest(uint64_t elements) {
    if (rest_ == nullptr || rest_->size() != elements)
      rest_ = std::make_unique<ZeroedFloats>(elements);
    return *rest_;
  }
  const HeldVelocity& velocity() const { return velocity_; }
  std::span<const float> velocity_values() const {
    return velocity_ == nullptr ? std::span<const float>() : std::span<const float>(*velocity_);
  }
  void SetVelocity(HeldVelocity velocity) { velocity_ = std::move(velocity); }

 private:
  std::unique_ptr<ZeroedFloats> spare_;
  std::vector<std::unique_ptr<ZeroedFloats>> earlier_;  // of trainers of other lengths
  HeldVelocity velocity_;
  std::unique_ptr<ZeroedFloats> rest_;
};

}  // namespace crowdsurf::worker
