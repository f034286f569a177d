// Peer: everything an agent decides, as one state machine: roster, view, joins, averagings, rounds,
// stand-ins.
//
// The host (agent, simulator, tests) feeds inputs with `now` and executes the actions of each, in
// order, before the next input. It composes: roster.h (who is alive), membership.h (steward, seats,
// successor views, branches), averaging.h (due, publish, rounds, catch-up, stand-ins, sample
// count), witness.h, strategy.h. Tensor bytes never pass through: chunks are named by (RoundHandle,
// rank, chunk, assigned ballot) and held by the host (reducer.h). Single sequence. Every map here
// is bounded by the view's size or a constant with a counter. Messages of a view that this peer has
// not entered yet wait here.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/down_evidence.h"
#include "base/id.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "base/time.h"
#include "worker/core/averaging/averaging.h"
#include "worker/core/membership/membership.h"
#include "worker/core/membership/roster.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/config.h"
#include "worker/core/port/inputs.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/port/peer_summary.h"
#include "worker/core/round/arrived_chunk.h"
#include "worker/core/vector/mix.h"

namespace crowdsurf::worker {

class Peer {
 public:
  static constexpr size_t kMaxEarlyBytes = 16 << 20;  // that they have on the wire
  static constexpr size_t kMaxEarly = 512;  // messages of a view to come: one averaging's worth

  Peer(PeerConfig config, Rng rng, Logger log, MetricRegistry& metrics);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void Start(Time now, Actions& out);
  void OnMessage(Time now, const PeerId& from, ByteView body, Actions& out);
  // Also the first answer to a WatchKey when there is no record: then `records` is empty.
  // whole: see Roster::OnRecords.
  void OnRecords(Time now, const std::vector<PeerRecord>& records, Actions& out, bool whole = true);
  void OnPeerDown(Time now, const PeerId& peer, DownEvidence evidence, Actions& out);
  // Its tensor link to this peer broke and is there again: frames on their way may be lost.
  void OnRenewed(Time now, const PeerId& peer, Actions& out);
  // True when the host must keep an input's bytes for a later FoldChunk.
  bool OnChunk(Time now, const ChunkArrived& chunk, Actions& out);
  void OnFolded(Time now, const FoldedChunk& chunk, Actions& out);
  // So many inputs and results have left for `to` since the last call, and the least round trip to
  // it; nullopt: nobody knows that. Said before OnTimer; a host that cannot tell says nothing.
  void OnChunksLeft(const PeerId& to, uint32_t chunks, std::optional<Duration> round_trip) {
    averaging_.rounds().OnChunksLeft(to, chunks, round_trip);
  }
  // Strategies on graphs: where a chunk that arrived is to be stored (nullopt: nowhere); then, when
  // it lies there or was refused, OnMixChunk. DescribeMix: what a chunk of a MixSend is made of
  // (nullopt: void by now).
  std::optional<MixPlace> PlaceMix(const MixArrived& chunk) const {
    return averaging_.mixing().Place(chunk);
  }
  void OnMixChunk(Time now, const MixArrived& chunk, Actions& out);
  std::optional<MixChunk> DescribeMix(const PeerId& to, MixTag tag, uint64_t sequence,
                                      uint32_t chunk) const {
    return averaging_.mixing().Describe(to, tag, sequence, chunk);
  }
  void OnLocal(Time now, const LocalEvent& event, Actions& out);
  void OnTimer(Time now, Actions& out);  // pre: now >= NextDeadline()
  Time NextDeadline() const;             // Infinite when idle

  PeerSummary Summarize() const;

 private:
  struct Early {  // of a view that this peer has not entered yet
    PeerId from;
    ViewHash view;
    Message message;
    size_t bytes;  // on the wire
  };
  void Dispatch(Time now, const PeerId& from, const Message& message, Actions& out);
  // Gives the message to Averaging if its view is ours; keeps it for a view to come.
  template <class M, class F>
  void InView(Time now, const PeerId& from, const M& message, F&& deliver, Actions& out);
  void Lose(Time now, const PeerId& peer, DownEvidence evidence, Actions& out);
  void Settle(Time now, Actions& out);
  RosterRecord Describe() const;
  bool IsWitness() const;
  std::vector<std::string> LostWorkers() const;
  std::vector<ViewHash> Lineages() const;

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
