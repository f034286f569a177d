// HostedCore: the core that an ActionHost gives its inputs: a whole Peer, or a part of one that a
// world makes itself.
//
// Each function is Peer's of that name, and means the same (worker/core/peer/peer.h). A part of a
// peer overrides the inputs that are its own; the others end here. Owner: one ActionHost; single
// sequence.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/down_evidence.h"
#include "base/id.h"
#include "base/time.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/inputs.h"
#include "worker/core/round/arrived_chunk.h"
#include "worker/core/vector/mix.h"

namespace crowdsurf::simulator {

class HostedCore {
 public:
  HostedCore() = default;
  virtual ~HostedCore() = default;
  HostedCore(const HostedCore&) = delete;
  HostedCore& operator=(const HostedCore&) = delete;

  virtual void Start(Time /*now*/, worker::Actions& /*out*/) {}
  virtual void OnMessage(Time now, const PeerId& from, ByteView body, worker::Actions& out) = 0;
  virtual void OnRecords(Time /*now*/, const std::vector<worker::PeerRecord>& /*records*/,
                         worker::Actions& /*out*/) {}
  virtual void OnPeerDown(Time now, const PeerId& peer, DownEvidence evidence,
                          worker::Actions& out) = 0;
  virtual void OnLocal(Time now, const worker::LocalEvent& event, worker::Actions& out) = 0;
  virtual void OnTimer(Time now, worker::Actions& out) = 0;
  virtual Time NextDeadline() const = 0;
  // ---- the bytes of rounds
  virtual bool OnChunk(Time /*now*/, const worker::ChunkArrived& /*chunk*/,
                       worker::Actions& /*out*/) {
    return false;
  }
  virtual void OnChunksLeft(const PeerId& /*to*/, uint32_t /*chunks*/,
                            std::optional<Duration> /*round_trip*/) {}
  virtual void OnFolded(Time /*now*/, const worker::FoldedChunk& /*chunk*/,
                        worker::Actions& /*out*/) {}
  // ---- strategies on graphs
  virtual std::optional<worker::MixPlace> PlaceMix(const worker::MixArrived& /*chunk*/) const {
    return std::nullopt;
  }
  virtual void OnMixChunk(Time /*now*/, const worker::MixArrived& /*chunk*/,
                          worker::Actions& /*out*/) {}
  virtual std::optional<worker::MixChunk> DescribeMix(const PeerId& /*to*/, worker::MixTag /*tag*/,
                                                      uint64_t /*sequence*/,
                                                      uint32_t /*chunk*/) const {
    return std::nullopt;
  }
};

}  // namespace crowdsurf::simulator
