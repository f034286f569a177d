// ReduceCore: GroupRounds and a strategy that reduces under masks, or over sub-networks, as the
// core of an ActionHost: what Peer and Averaging do with them, and no more.
//
// One Published is one averaging. It ends with Deliver, whose samples are the weight in the result,
// or with ReleaseOutbox. Owner: one ActionHost; single sequence. Allocations of the core are
// watched.
#pragma once

#include <memory>
#include <set>

#include "base/metrics.h"
#include "simulator/host/hosted_core.h"
#include "tests/contract/world/masked_all_reduce.h"
#include "worker/core/averaging/group_rounds.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

class ReduceCore : public simulator::HostedCore {
 public:
  // units: of IST's vector.
  ReduceCore(PeerConfig config, std::unique_ptr<Strategy> strategy, uint64_t elements,
             const UnitSchema& units = {});

  const MetricRegistry& metrics() const { return registry_; }
  uint64_t bad_inputs() const { return bad_inputs_; }  // chunks that were not sound
  void EnterView(Time now, const Seating& seating, Actions& out);

  void OnMessage(Time now, const PeerId& from, ByteView body, Actions& out) override;
  void OnPeerDown(Time now, const PeerId& peer, DownEvidence evidence, Actions& out) override;
  void OnLocal(Time now, const LocalEvent& event, Actions& out) override;
  void OnTimer(Time now, Actions& out) override;
  Time NextDeadline() const override { return rounds_.NextDeadline(); }
  bool OnChunk(Time now, const ChunkArrived& chunk, Actions& out) override;
  void OnFolded(Time now, const FoldedChunk& chunk, Actions& out) override;

 private:
  void Tell(Time now, const Event& event, Actions& out);
  void OpenOne(Time now, const OpenRound& open, Actions& out);
  void CollectEnded(Time now, Actions& out);

  const PeerConfig config_;
  MetricRegistry registry_;
  PeerMetrics metrics_{registry_};
  GroupRounds rounds_;
  std::unique_ptr<Strategy> strategy_;
  const uint64_t elements_;
  Seating seating_;
  std::set<PeerId> down_;
  uint64_t bad_inputs_ = 0;
};

}  // namespace crowdsurf::worker
