// Chunk plane: executes the actions of the peer core that touch tensor bytes, and brings arriving
// chunks to it.
//
// Purpose: between Peer (decides), Reducer (holds and folds), TensorTransport (moves) and the
// link's regions (memory). A send that finds a peer's queue full waits as a few words and is
// encoded when its turn comes (worker/core/link/send_queues.h), so the bytes in flight stay
// bounded. Host thread only. Bounds: the reducer's bytes; SendQueuesConfig; endpoints of introduced
// peers.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include "worker/core/link/send_queues.h"
#include "worker/core/port/actions.h"
#include "worker/core/reduce/reducer.h"
#include "worker/core/round/arrived_chunk.h"
#include "worker/core/round/chunk_index.h"
#include "worker/edge/metrics/agent_metrics.h"
#include "worker/edge/metrics/averaging_clock.h"
#include "worker/edge/tensor/tensor_transport.h"

namespace crowdsurf::worker {

// Read-only and writable views of a region: of the whole vector.
struct RegionMemory {
  std::function<std::span<const float>(Region)> read;
  std::function<std::span<float>(Region)> write;  // never kOutbox
};

class ChunkPlane {
 public:
  static constexpr size_t kMaxPeers = 200'000;  // introduced
  static constexpr size_t kMaxInputBytes = 256 << 20;

  // References outlive the plane, and so does `clock`, which is told of its work; nullptr: nobody.
  ChunkPlane(TensorTransport& transport, RegionMemory memory, AgentMetrics& metrics, Logger log,
             AveragingClock* clock = nullptr)
      : transport_(transport),
        memory_(std::move(memory)),
        metrics_(metrics),
        clock_(clock),
        log_(log),
        reducer_(kMaxInputBytes, transport.pool()) {}

  void Introduce(const PeerId& peer, const std::string& tensor_endpoint);
  std::optional<std::string> EndpointOf(const PeerId& peer) const;
  void Open(const OpenBuffers& open);
  void Close(const CloseBuffers& close);
  // Pre: the action's round is open; of a StoreResult, OnFrame is holding its payload.
  // What a FoldChunk gave is for Peer::OnFolded, after the input in hand is done.
  std::optional<FoldedChunk> Execute(Time now, const Chunk& chunk);
  void Execute(Time now, const SpeakChunk& speak);

  // A chunk frame arrived. `ask` is Peer::OnChunk: are the bytes to be kept? `act` executes the
  // actions it gave; it runs when the bytes are in place, for a FoldChunk may be among them.
  void OnFrame(const PeerId& from, const TensorHeader& header, TensorPayload payload,
               const std::function<bool(const ChunkArrived&)>& ask,
               const std::function<void()>& act);
  void OnDrained(Time now, const PeerId& peer);
  // The link with it failed: what waits is tried again.
  void OnFailed(Time now, const PeerId& peer) { queues_.OnFailed(now, peer); }
  void OnDead(const PeerId& peer);  // what waits for it is dropped
  void OnTimer(Time now);
  Time NextDeadline() const { return queues_.NextDeadline(); }
  // The region is about to hold something else: inputs that wait for it are void.
  void Overwritten(Region region);
  // The region's bytes are those that the round of that ResultHashes::key has decided.
  bool LiesAsDecided(Region region, uint64_t key) const;
  // The outbox, or an inbox, may be written: what waits to be sent from there is copied.
  void KeepLent();

  // Sends a state frame, now or when the peer's queue has drained; false when the peer is unknown.
  bool SendStateFrame(Time now, const PeerId& to, SharedBytes payload);

 private:
  struct InputSend {
    RoundHandle round;
    ChunkIndex chunk = {};
    Ballot assigned;
    uint64_t generation;  // of the round's own input
  };
  struct ResultSend {
    RoundHandle round;
    ChunkIndex chunk = {};
    Ballot assigned;
    RankSet mask = {};
    uint64_t hash;
    uint64_t call;  // its number: in a later one another result may lie there
  };
  struct SpeakSend {
    SpeakChunk speak;
    uint64_t generation;  // of its region
  };
  using Waiting = std::variant<InputSend, ResultSend, SpeakSend, SharedBytes>;
  struct OpenedRound {
    InstanceId instance;
    int self;
    Region from, to;
    bool from_base = false;
    bool lands = false;        // results are received into its slots
    bool overwritten = false;  // `to` has other values by now
  };
  using Sent = TensorTransport::Sent;

  AveragingWork Works(AveragingPart part) const { return AveragingWork(clock_, part); }
  uint64_t GenerationOf(const OpenedRound& round);
  bool OpenSlots(const OpenBuffers& open);
  void CloseSlots(OpenedRound& round);
  void TakeSlot(const OpenedRound& open, RoundHandle round, ChunkIndex chunk);
  void KeepLent(RoundHandle round, ChunkIndex chunk);
  void Store(const OpenedRound& open, RoundHandle round, ChunkIndex chunk);
  void SendInOrder(Time now, const PeerId& to, Waiting what);
  void Flush(Time now, const PeerId& to);  // what waits and can go
  // What has become void counts as sent.
  Sent TrySend(const PeerId& to, const Waiting& what);
  Sent TrySendInput(const PeerId& to, const InputSend& what);
  Sent TrySendResult(const PeerId& to, const ResultSend& what);
  Sent TrySpeak(const PeerId& to, const SpeakSend& what);
  bool IsSound(RoundHandle round, const ChunkArrived& arrived, const TensorPayload& payload) const;
  Bytes OwnInput(const InputSend& what) const;
  SharedBytes Result(const ResultSend& what);
  Sent Transmit(const PeerId& to, const TensorHeader& header, SharedBytes payload);
  Sent TransmitLent(const PeerId& to, const TensorHeader& header, ByteView lent);
  bool IsOther(const ResultSend& what, const InstanceId& instance, ByteView wire) const;

  TensorTransport& transport_;
  const RegionMemory memory_;
  AgentMetrics& metrics_;
  AveragingClock* const clock_;
  const Logger log_;
  Reducer<float> reducer_;
  std::map<PeerId, std::string> endpoints_;
  std::map<RoundHandle, OpenedRound> rounds_;
  SendQueues<Waiting> queues_;
  uint64_t calls_ = 0;
  std::map<Region, uint64_t> generations_;
  std::map<Region, uint64_t> decided_;                       // keys, of rounds that are closed
  bool lends_ = false;                                       // since the last KeepLent
  std::set<std::pair<RoundHandle, ChunkIndex>> lent_slots_;  // of open rounds, since then
  const TensorPayload* offered_ = nullptr;                   // the result in hand, during OnFrame
};

}  // namespace crowdsurf::worker
