// LeaseQueue: a trainer's leases: the batch to train next, and how far its parameters are.
//
// What the agent grants replaces what it granted before. The same stream goes on behind what is
// trained already; another one begins anew, and what was in hand of the old one does not count. An
// adoption ends the stream, and the agent gives another. Source: docs/trainer-link.md, section 10.
// Value; one sequence. Bound: the leases of one grant.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "worker/core/shard/lease.h"

namespace crowdsurf::worker {

class LeaseQueue {
 public:
  explicit LeaseQueue(uint32_t unit);  // samples of a batch, at least 1

  void Take(const LeasesGranted& granted);
  // At most a unit of one lease; the same again until it is trained. nullopt: none is left.
  std::optional<Lease> Next();
  // The batch that Next gave is in the parameters. Without one it does nothing.
  void Trained();
  void Drop();  // the parameters were replaced

  StreamPosition at() const { return {stream_, position_}; }
  bool closed() const { return closed_; }  // nothing more is to be trained

 private:
  void Skip(uint64_t samples);

  const uint32_t unit_;
  uint64_t stream_ = 0, position_ = 0;  // stream 0: none
  uint64_t left_ = 0;                   // the stream that an adoption has ended
  uint64_t handed_ = 0;                 // samples that Next gave
  bool closed_ = false;
  std::deque<Lease> rest_;  // from position_ on
};

}  // namespace crowdsurf::worker
