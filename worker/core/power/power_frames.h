// PowerFrames: what a frame of PowerGossip holds at each step, and where it lies.
//
// A frame is what one end of an edge sends the other at one step: a head, and then the projections
// of all matrices with what travels whole, or at a dense step the vector itself. Both ends derive
// its length from the step, so that nobody has to say it. An edge has one region, with two slots
// for frames that arrive and two for the own ones: those of odd and of even steps. The head says
// what the sender's factors are (power_edges.h): bytes as values, exact in every wire format.
// Value; any thread. Source: docs/strategies (PowerGossip).
#pragma once

#include <cstdint>
#include <memory>

#include "worker/core/power/power_layout.h"
#include "worker/core/vector/mix.h"

namespace crowdsurf::worker {

class PowerFrames {
 public:
  static constexpr uint64_t kHead = 12;  // values: 8 of a fingerprint, 4 of a count of re-seeds

  // dense_every: steps from one dense step to the next; 0: none is.
  PowerFrames(std::shared_ptr<const PowerLayout> layout, uint64_t dense_every);

  const std::shared_ptr<const PowerLayout>& layout() const { return layout_; }
  // Steps count from 1 in every view.
  bool IsDense(uint64_t step) const { return dense_every_ > 0 && step % dense_every_ == 0; }
  // Power iterations up to the end of `step`.
  uint64_t IterationsBy(uint64_t step) const {
    return step - (dense_every_ > 0 ? step / dense_every_ : 0);
  }
  uint64_t SizeOf(uint64_t step) const;  // values, the head among them

  // Of an edge's region: where the other end's frame of a step arrives, and where the own one lies.
  Extent Arriving(uint64_t step) const;
  Extent Own(uint64_t step) const;
  uint64_t RegionSize() const { return 2 * (odd_slot_ + even_slot_); }

  static MixTag TagOf(uint64_t step) {
    return static_cast<MixTag>(kFirstEdgeTag + (step % 2 == 0 ? 1 : 0));
  }

 private:
  uint64_t SlotSize(uint64_t first_step) const;  // of every second step from that one on

  std::shared_ptr<const PowerLayout> layout_;
  uint64_t dense_every_;
  uint64_t odd_slot_, even_slot_;
};

}  // namespace crowdsurf::worker
