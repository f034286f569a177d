// Peer: everything an agent decides, as one state machine: roster, view, joins, averagings, rounds,
// stand-ins.
//
// The host (agent, simulator, tests) feeds inputs with `now` and executes the actions of each, in
// order, before the next input. It composes: roster.h (who is alive), membership.h (steward, seats,
// successor views, branches), averaging.h (due, publish, rounds, catch-up, stand-ins, sample
// count), witness.h, strategy.h. Tensor bytes never pass through: chunks are named by (RoundHandle,
// rank, chunk, assigned ballot) and held by the host (reducer.h). Single sequence. Every map here
// is bounded by the view's size or a constant with a counter.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "base/time.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/config.h"
#include "worker/core/port/inputs.h"
#include "worker/core/port/peer_summary.h"
#include "worker/core/round/arrived_chunk.h"
#include "worker/core/vector/mix.h"

namespace crowdsurf::worker {

class Peer {
 public:
  Peer(PeerConfig config, Rng rng, Logger log, MetricRegistry& metrics);
  ~Peer();

  void Start(Time now, Actions& out);
  void OnMessage(Time now, const PeerId& from, ByteView body, Actions& out);
  // Also the first answer to a WatchKey when there is no record: then `records` is empty.
  void OnRecords(Time now, const std::vector<PeerRecord>& records, Actions& out);
  void OnPeerDown(Time now, const PeerId& peer, bool hard, Actions& out);
  // True when the host must keep an input's bytes for a later FoldChunk.
  bool OnChunk(Time now, const ChunkArrived& chunk, Actions& out);
  void OnFolded(Time now, RoundHandle round, uint32_t chunk, Ballot assigned, uint64_t hash,
                Actions& out);
  // Strategies on graphs: where a chunk that arrived is to be stored (nullopt: nowhere); then, when
  // it lies there or was refused, OnMixChunk. `stored`: it had a place, the right size and finite
  // values. DescribeMix: what a chunk of a MixSend is made of (nullopt: void by now).
  std::optional<MixPlace> PlaceMix(const MixArrived& chunk) const;
  void OnMixChunk(Time now, const MixArrived& chunk, bool stored, Actions& out);
  std::optional<MixChunk> DescribeMix(const PeerId& to, MixTag tag, uint64_t sequence,
                                      uint32_t chunk) const;
  void OnLocal(Time now, const LocalEvent& event, Actions& out);
  void OnTimer(Time now, Actions& out);  // pre: now >= NextDeadline()
  Time NextDeadline() const;             // Infinite when idle

  PeerSummary Summarize() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::worker
