#include "worker/core/power/power_frames.h"

#include <algorithm>
#include <utility>

namespace crowdsurf::worker {

PowerFrames::PowerFrames(std::shared_ptr<const PowerLayout> layout, uint64_t dense_every)
    : layout_(std::move(layout)),
      dense_every_(dense_every),
      odd_slot_(SlotSize(1)),
      even_slot_(SlotSize(2)) {}

// Room for the longest frame of such steps. Dense steps shift which half of a power iteration comes
// at odd steps.
uint64_t PowerFrames::SlotSize(uint64_t first_step) const {
  const uint64_t odd = layout_->MessageSize(1), even = layout_->MessageSize(2);
  if (dense_every_ == 0) return kHead + layout_->MessageSize(first_step);
  const bool dense = first_step % 2 == 0 || dense_every_ % 2 == 1;
  return kHead + std::max({odd, even, dense ? layout_->elements() : 0});
}

uint64_t PowerFrames::SizeOf(uint64_t step) const {
  return kHead + (IsDense(step) ? layout_->elements() : layout_->MessageSize(IterationsBy(step)));
}

Extent PowerFrames::Arriving(uint64_t step) const {
  return {step % 2 == 1 ? 0 : odd_slot_, SizeOf(step)};
}

Extent PowerFrames::Own(uint64_t step) const {
  return {odd_slot_ + even_slot_ + (step % 2 == 1 ? 0 : odd_slot_), SizeOf(step)};
}

}  // namespace crowdsurf::worker
