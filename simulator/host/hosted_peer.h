// HostedPeer: a whole Peer as the core of an ActionHost.
//
// Owner: one ActionHost; single sequence. Pre of every call: the Peer's (worker/core/peer/peer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/host/hosted_core.h"
#include "worker/core/peer/peer.h"

namespace crowdsurf::simulator {

class HostedPeer : public HostedCore {
 public:
  HostedPeer(const worker::PeerConfig& config, Rng rng, Logger log, MetricRegistry& metrics)
      : peer_(config, rng, log, metrics) {}

  const worker::Peer& peer() const { return peer_; }

  void Start(Time now, worker::Actions& out) override { peer_.Start(now, out); }
  void OnMessage(Time now, const PeerId& from, ByteView body, worker::Actions& out) override {
    peer_.OnMessage(now, from, body, out);
  }
  void OnRecords(Time now, const std::vector<worker::PeerRecord>& records,
                 worker::Actions& out) override {
    peer_.OnRecords(now, records, out);
  }
  void OnPeerDown(Time now, const PeerId& peer, DownEvidence evidence,
                  worker::Actions& out) override {
    peer_.OnPeerDown(now, peer, evidence, out);
  }
  void OnLocal(Time now, const worker::LocalEvent& event, worker::Actions& out) override {
    peer_.OnLocal(now, event, out);
  }
  void OnTimer(Time now, worker::Actions& out) override { peer_.OnTimer(now, out); }
  Time NextDeadline() const override { return peer_.NextDeadline(); }
  bool OnChunk(Time now, const worker::ChunkArrived& chunk, worker::Actions& out) override {
    return peer_.OnChunk(now, chunk, out);
  }
  void OnChunksLeft(const PeerId& to, uint32_t chunks,
                    std::optional<Duration> round_trip) override {
    peer_.OnChunksLeft(to, chunks, round_trip);
  }
  void OnFolded(Time now, const worker::FoldedChunk& chunk, worker::Actions& out) override {
    peer_.OnFolded(now, chunk, out);
  }
  std::optional<worker::MixPlace> PlaceMix(const worker::MixArrived& chunk) const override {
    return peer_.PlaceMix(chunk);
  }
  void OnMixChunk(Time now, const worker::MixArrived& chunk, worker::Actions& out) override {
    peer_.OnMixChunk(now, chunk, out);
  }
  std::optional<worker::MixChunk> DescribeMix(const PeerId& to, worker::MixTag tag,
                                              uint64_t sequence, uint32_t chunk) const override {
    return peer_.DescribeMix(to, tag, sequence, chunk);
  }

 private:
  worker::Peer peer_;
};

}  // namespace crowdsurf::simulator
