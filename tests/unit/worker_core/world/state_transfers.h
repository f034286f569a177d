// StateTransfers: how a PeerWorld's joiners get their state chunk by chunk, by the real cores.
//
// Each node is a StateDonor of what lies in its inboxes, and runs one StateFetch at a time. A
// donor's link carries one chunk after the other, so that a transfer may take longer than the
// intervals of its donors. Owner: one world; single sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "simulator/engine/event_queue.h"
#include "worker/core/port/actions.h"
#include "worker/core/state/state_donor.h"
#include "worker/core/state/state_fetch.h"

namespace crowdsurf::worker {

class StateTransfers {
 public:
  struct World {
    simulator::EventQueue& queue;
    std::function<bool(const PeerId& peer)> alive;
    // What lies there now.
    std::function<const std::vector<double>&(const PeerId& peer, Region region)> values;
    // The fetch of that peer is over: what it asked for, and what came.
    std::function<void(const PeerId& peer, const FetchState& asked)> over;
  };
  // A chunk of `chunk` values takes `takes` on its donor's link.
  StateTransfers(World world, size_t chunk, Duration takes)
      : world_(std::move(world)), chunk_(chunk), takes_(takes) {}

  // `peer` holds what it has delivered now; with kVelocity, if its parts say so.
  void Offer(const PeerId& peer, const Deliver& delivered);
  void Retire(const PeerId& peer, Region region);
  // Takes the place of the peer's fetch before.
  void Fetch(const PeerId& peer, const FetchState& asked);

  struct Result {
    std::vector<double> values;  // the average, then the velocity, or zeros
    bool ok = false, mixed = false;
    AveragingId averaging = {};
    double job_samples = 0;
  };
  const Result& result(const PeerId& peer) const { return fetches_.at(peer).result; }

 private:
  struct Fetching {
    uint64_t serial = 0;
    FetchState asked;
    std::optional<StateFetch> core;
    Result result;
  };
  StateDonor& DonorOf(const PeerId& peer);
  void Execute(const PeerId& peer, const FetchActions& actions, ByteView payload);
  Bytes StateOf(const PeerId& peer, Region region) const;
  void Serve(const PeerId& donor, const PeerId& joiner, uint64_t serial,
             const StateMessage& message);
  void Arm(const PeerId& peer);
  void End(const PeerId& peer, const FetchDone* done);

  static constexpr Duration kDelay = Microseconds(300);

  const World world_;
  const size_t chunk_;
  const Duration takes_;
  MetricRegistry metrics_;
  std::map<PeerId, std::unique_ptr<StateDonor>> donors_;
  std::map<PeerId, Fetching> fetches_;
  std::map<PeerId, Time> link_free_;
};

}  // namespace crowdsurf::worker
