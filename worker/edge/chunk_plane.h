// Chunk plane: executes the actions of the peer core that touch tensor bytes, and brings arriving
// chunks to it.
//
// Purpose: between Peer (decides), Reducer (holds and folds), TensorTransport (moves) and the
// link's regions (memory). A send that finds a peer's queue full waits here as a few words and is
// encoded when the queue has drained, so the bytes in flight stay bounded. Host thread only.
// Bounds: the reducer's bytes; kMostWaiting words of sends per peer; endpoints of introduced peers.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <variant>

#include "worker/core/peer.h"
#include "worker/core/reducer.h"
#include "worker/edge/agent_metrics.h"
#include "worker/edge/tensor_transport.h"

namespace crowdsurf::worker {

// Read-only and writable views of a region: of the whole vector.
struct RegionMemory {
  std::function<std::span<const float>(Region)> read;
  std::function<std::span<float>(Region)> write;  // never kOutbox
};

class ChunkPlane {
 public:
  static constexpr size_t kMostWaiting = 1 << 18;  // sends of one peer: 32 GiB of chunks
  static constexpr size_t kMostPeers = 200'000;    // introduced
  static constexpr size_t kMostInputBytes = 256 << 20;

  // References outlive the plane.
  ChunkPlane(TensorTransport& transport, RegionMemory memory, AgentMetrics& metrics, Logger log)
      : transport_(transport),
        memory_(std::move(memory)),
        metrics_(metrics),
        log_(log),
        reducer_(kMostInputBytes) {}

  // What a FoldChunk gave: to be told to Peer::OnFolded after the input in hand is done.
  struct Folded {
    RoundHandle round;
    uint32_t chunk;
    Ballot assigned;
    uint64_t hash;
  };

  void Introduce(const PeerId& peer, const std::string& tensor_endpoint);
  std::optional<std::string> EndpointOf(const PeerId& peer) const;
  void Open(const OpenBuffers& open);
  void Close(const CloseBuffers& close);
  // Pre: the action's round is open. `offered` is the payload that OnFrame is holding, for
  // StoreResult.
  std::optional<Folded> Execute(const Chunk& chunk);
  void Execute(const SpeakChunk& speak);

  // A chunk frame arrived. `ask` is Peer::OnChunk: are the bytes to be kept? `act` executes the
  // actions it gave; it runs when the bytes are in place, for a FoldChunk may be among them.
  void OnFrame(const PeerId& from, const TensorHeader& header, Bytes payload,
               const std::function<bool(const ChunkArrived&)>& ask,
               const std::function<void()>& act);
  void OnDrained(const PeerId& peer);
  void OnDown(const PeerId& peer);  // what waits for it is dropped
  // The region is about to hold something else: stand-ins' sends that wait for it are void.
  void Overwritten(Region region) { ++generations_[region]; }

  // Sends a state frame, now or when the peer's queue has drained; false when the peer is unknown.
  bool SendStateFrame(const PeerId& to, SharedBytes payload);

 private:
  struct InputSend {
    RoundHandle round;
    uint32_t chunk;
    Ballot assigned;
  };
  struct ResultSend {
    RoundHandle round;
    uint32_t chunk;
    Ballot assigned;
    Mask mask;
    uint64_t hash;
  };
  struct SpeakSend {
    SpeakChunk speak;
    uint64_t generation;  // of its region
  };
  using Waiting = std::variant<InputSend, ResultSend, SpeakSend, SharedBytes>;
  struct OpenedRound {
    InstanceId instance;
    int self;
  };

  void SendOrWait(const PeerId& to, Waiting what);
  // False: the queue is full, try again later. What has become void counts as done. `waited`: a
  // result may have been replaced since it was to be sent.
  bool TrySend(const PeerId& to, const Waiting& what, bool waited);
  bool TrySpeak(const PeerId& to, const SpeakSend& what);
  bool Transmit(const PeerId& to, const TensorHeader& header, SharedBytes payload);

  TensorTransport& transport_;
  const RegionMemory memory_;
  AgentMetrics& metrics_;
  const Logger log_;
  Reducer<float> reducer_;
  std::map<PeerId, std::string> endpoints_;
  std::map<RoundHandle, OpenedRound> rounds_;
  std::map<PeerId, std::deque<Waiting>> waiting_;
  std::map<Region, uint64_t> generations_;
  const Bytes* offered_ = nullptr;  // the result in hand, during OnFrame
};

}  // namespace crowdsurf::worker
