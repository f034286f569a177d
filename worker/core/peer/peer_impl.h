// Peer::Impl: the parts of a peer and how an input reaches them (peer.h).
//
// Private to peer.cc and peer_summary.cc. Messages of a view that this peer has not entered yet
// wait here, bounded; everything else is in the parts. Single sequence.
#pragma once

#include <deque>

#include "worker/core/averaging/averaging.h"
#include "worker/core/membership/membership.h"
#include "worker/core/membership/roster.h"
#include "worker/core/peer/peer.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {

class Peer::Impl {
 public:
  static constexpr size_t kMaxEarlyBytes = 16 << 20;  // that they have on the wire
  static constexpr size_t kMaxEarly = 512;  // messages of a view to come: one averaging's worth

  Impl(PeerConfig config, Rng rng, Logger log, MetricRegistry& metrics);

  void Start(Time now, Actions& out);
  void OnMessage(Time now, const PeerId& from, ByteView body, Actions& out);
  void OnRecords(Time now, const std::vector<PeerRecord>& records, Actions& out);
  void OnPeerDown(Time now, const PeerId& peer, bool hard, Actions& out);
  bool OnChunk(Time now, const ChunkArrived& chunk, Actions& out);
  void OnFolded(Time now, RoundHandle round, uint32_t chunk, Ballot assigned, uint64_t hash,
                Actions& out);
  void OnMixChunk(Time now, const MixArrived& chunk, bool stored, Actions& out);
  const Mixing& mixing() const { return averaging_.mixing(); }
  void OnLocal(Time now, const LocalEvent& event, Actions& out);
  void OnTimer(Time now, Actions& out);
  Time NextDeadline() const;
  PeerSummary Summarize() const;

 private:
  struct Early {
    PeerId from;
    ViewHash view;
    Message message;
    size_t bytes;  // on the wire
  };
  void Dispatch(Time now, const PeerId& from, const Message& message, Actions& out);
  // Gives the message to Averaging if its view is ours; keeps it for a view to come.
  template <class M, class F>
  void InView(Time now, const PeerId& from, const M& message, F&& deliver, Actions& out);
  void Settle(Time now, Actions& out);
  RosterRecord Describe() const;
  bool IsWitness() const;
  std::vector<std::string> LostWorkers() const;

  const PeerConfig config_;
  Logger log_;
  PeerMetrics metrics_;
  Roster roster_;
  Averaging averaging_;
  Membership membership_;
  std::deque<Early> early_;
  size_t early_bytes_ = 0;
  size_t body_bytes_ = 0;  // of the message in hand
  ViewHash replayed_;      // the view for which early messages were looked through
  Time leave_at_;
};

}  // namespace crowdsurf::worker
