// OuterMemory: what strategies need beside the trainer's link and their own: kSpare, also what
// neighbours are sent from, kVelocity and kRest.
//
// Each is as long as the vector, made by its first use, and zeros then. A velocity is shared with
// the thread that hashes it, which may outlive its use here; kSpare stays as long as the agent, for
// rounds that are over still serve from it. Host thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace crowdsurf::worker {

using HeldVelocity = std::shared_ptr<std::vector<float>>;  // nullptr: there is none, or zeros

class OuterMemory {
 public:
  std::span<float> Spare(uint64_t elements) {
    if (spare_ == nullptr || spare_->size() != elements) {
      if (spare_ != nullptr) earlier_.push_back(std::move(spare_));
      spare_ = std::make_unique<std::vector<float>>(elements);
    }
    return *spare_;
  }
  std::span<float> Velocity(uint64_t elements) {
    if (velocity_ == nullptr || velocity_->size() != elements)
      velocity_ = std::make_shared<std::vector<float>>(elements);
    return *velocity_;
  }
  std::span<float> Rest(uint64_t elements) {
    if (rest_.size() != elements) rest_.assign(elements, 0);
    return rest_;
  }
  const HeldVelocity& velocity() const { return velocity_; }
  std::span<const float> velocity_values() const {
    return velocity_ == nullptr ? std::span<const float>() : std::span<const float>(*velocity_);
  }
  void SetVelocity(HeldVelocity velocity) { velocity_ = std::move(velocity); }

 private:
  std::unique_ptr<std::vector<float>> spare_;
  std::vector<std::unique_ptr<std::vector<float>>> earlier_;  // of trainers of other lengths
  HeldVelocity velocity_;
  std::vector<float> rest_;
};

}  // namespace crowdsurf::worker
