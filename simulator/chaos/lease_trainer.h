// LeaseTrainer: what a trainer that draws leases has trained, and when.
//
// It trains a unit at a time, one after the other, as long as it has leases, and takes what it is
// granted anew at its next step boundary, as docs/trainer-link.md says. Batches are laid out in
// time when leases come, so how far it is at a time is looked up. It remembers all of them, for the
// checkers. Owner: VirtualTrainer; single sequence.
#pragma once

#include <cstddef>
#include <vector>

#include "base/time.h"
#include "worker/core/shard/lease.h"

namespace crowdsurf::simulator {

class LeaseTrainer {
 public:
  struct Batch {
    Time begin, end;
    uint64_t stream = 0;
    uint64_t position = 0;  // in the stream, after it
    worker::Lease lease;    // what it trains
    uint64_t total = 0;     // samples of all batches up to it
  };

  LeaseTrainer(Duration step, uint32_t unit) : step_(step), unit_(unit) {}

  void Take(Time now, const worker::LeasesGranted& granted);
  // Its parameters are replaced: the step under way is lost.
  void Adopt(Time now);

  worker::StreamProgress Progress(Time now) const;
  size_t Done(Time now) const;  // batches that have ended
  const std::vector<Batch>& batches() const { return batches_; }
  uint64_t Samples(Time now) const;
  Time NextBoundary(Time now) const;  // `now` where it waits
  // When the last batch that it has leases for ends; not after `now` where it waits.
  Time DryAt() const { return batches_.empty() ? Time() : batches_.back().end; }

 private:
  const Duration step_;
  const uint32_t unit_;
  worker::LeasesGranted granted_;
  std::vector<Batch> batches_;  // in time; those that have not begun may be dropped
};

}  // namespace crowdsurf::simulator
