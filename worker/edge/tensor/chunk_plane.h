// Chunk plane: executes the actions of the peer core that touch tensor bytes, and brings arriving
// chunks to it.
//
// Purpose: between Peer (decides), Reducer (holds and folds), SendPlane (says whose turn it is),
// TensorTransport (moves) and the link's regions (memory). Host thread only. Bounds: the reducer's
// bytes; SendPlane's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "worker/core/port/actions.h"
#include "worker/core/reduce/reducer.h"
#include "worker/core/round/arrived_chunk.h"
#include "worker/core/round/chunk_index.h"
#include "worker/edge/metrics/agent_metrics.h"
#include "worker/edge/metrics/averaging_clock.h"
#include "worker/edge/tensor/send_plane.h"
#include "worker/edge/tensor/tensor_transport.h"

namespace crowdsurf::worker {

// Read-only and writable views of a region: of the whole vector.
struct RegionMemory {
  std::function<std::span<const float>(Region)> read;
  std::function<std::span<float>(Region)> write;  // never kOutbox
};

class ChunkPlane : public Sender {
 public:
  static constexpr size_t kMaxInputBytes = 256 << 20;

  // References outlive the plane, and so does `clock`, which is told of its work; nullptr: nobody.
  ChunkPlane(TensorTransport& transport, SendPlane& sends, RegionMemory memory,
             AgentMetrics& metrics, AveragingClock* clock = nullptr)
      : transport_(transport),
        sends_(sends),
        memory_(std::move(memory)),
        metrics_(metrics),
        clock_(clock),
        reducer_(kMaxInputBytes, transport.pool()) {}

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
  // The region is about to hold something else: inputs that wait for it are void.
  void Overwritten(Region region);
  // The region's bytes are those that the round of that ResultHashes::key has decided.
  bool LiesAsDecided(Region region, uint64_t key) const;
  // The outbox, or an inbox, may be written: what waits to be sent from there is copied.
  void KeepLent();

  // Sends a state frame, now or when its turn has come; false when the peer is unknown.
  bool SendStateFrame(Time now, const PeerId& to, SharedBytes payload);
  // What has become void counts as sent.
  Tried Try(const PeerId& to, WaitingSend& what) override;

 private:
  struct OpenedRound {
    InstanceId instance;
    int self;
    Region from, to;
    bool from_base = false;
    bool lands = false;        // results are received into its slots
    bool overwritten = false;  // `to` has other values by now
  };

  AveragingWork Works(AveragingPart part) const { return AveragingWork(clock_, part); }
  uint64_t GenerationOf(const OpenedRound& round);
  bool OpenSlots(const OpenBuffers& open);
  void CloseSlots(OpenedRound& round);
  void TakeSlot(const OpenedRound& open, RoundHandle round, ChunkIndex chunk);
  void KeepLent(RoundHandle round, ChunkIndex chunk);
  void Store(const OpenedRound& open, RoundHandle round, ChunkIndex chunk);
  Tried TryInput(const PeerId& to, const InputSend& what);
  Tried TryResult(const PeerId& to, const ResultSend& what);
  Tried TrySpeak(const PeerId& to, const SpeakSend& what);
  bool IsSound(RoundHandle round, const ChunkArrived& arrived, const TensorPayload& payload) const;
  Tried Lend(const PeerId& to, const TensorHeader& header, ByteView bytes);
  Bytes OwnInput(const InputSend& what) const;
  SharedBytes Result(const ResultSend& what);
  bool IsOther(const ResultSend& what, const InstanceId& instance, ByteView wire) const;

  TensorTransport& transport_;
  SendPlane& sends_;
  const RegionMemory memory_;
  AgentMetrics& metrics_;
  AveragingClock* const clock_;
  Reducer<float> reducer_;
  std::map<RoundHandle, OpenedRound> rounds_;
  uint64_t calls_ = 0;  // that sent a result
  std::map<Region, uint64_t> generations_;
  std::map<Region, uint64_t> decided_;                       // keys, of rounds that are closed
  bool lends_ = false;                                       // since the last KeepLent
  std::set<std::pair<RoundHandle, ChunkIndex>> lent_slots_;  // of open rounds, since then
  const TensorPayload* offered_ = nullptr;                   // the result in hand, during OnFrame
};

}  // namespace crowdsurf::worker
