// Mix plane: executes the actions of strategies on graphs that touch tensor bytes.
//
// Between Peer (decides), TensorTransport (moves), the link's regions and the strategy's own
// buffers, which lie here. A message leaves chunk by chunk as fast as its peer's queue takes it;
// what a chunk is made of is asked of the core at that moment (DescribeMix), so a late chunk
// carries the latest, and nothing is copied but the chunk. Host thread only. Bounds: the regions
// that the core declares (ReserveRegions); a message per peer and tag waits (send_queues.h),
// a newer one takes its place (chunk_turn.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "worker/core/link/chunk_turn.h"
#include "worker/core/link/send_queues.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/inputs.h"
#include "worker/core/power/power_edges.h"
#include "worker/core/vector/mix.h"
#include "worker/edge/metrics/agent_metrics.h"
#include "worker/edge/tensor/chunk_plane.h"
#include "worker/edge/tensor/tensor_transport.h"

namespace crowdsurf::worker {

class MixPlane {
 public:
  struct Core {  // Peer's answers
    std::function<std::optional<MixPlace>(const MixArrived&)> place;
    std::function<std::optional<MixChunk>(const PeerId&, MixTag, uint64_t, uint32_t)> describe;
    std::function<std::optional<std::string>(const PeerId&)> endpoint;  // nullopt: unknown peer
  };

  MixPlane(TensorTransport& transport, RegionMemory memory, Core core, AgentMetrics& metrics)
      : transport_(transport),
        memory_(std::move(memory)),
        core_(std::move(core)),
        metrics_(metrics) {}

  // What was reserved before is void.
  void Reserve(const ReserveRegions& reserve);
  // Pre: the regions are the link's or reserved, and hold the range.
  void Run(const RunKernel& kernel);
  void Run(const PowerAction& action);
  // Each returns the messages whose last chunk has left, or is void.
  std::vector<MixSent> Send(Time now, const MixSend& send);
  std::vector<MixSent> OnDrained(Time now, const PeerId& peer);
  std::vector<MixSent> OnTimer(Time now);
  Time NextDeadline() const { return queues_.NextDeadline(); }
  // The link with it failed: what waits is tried again.
  void OnFailed(Time now, const PeerId& peer) { queues_.OnFailed(now, peer); }
  void OnDead(const PeerId& peer);  // what waits for it is dropped, without a MixSent
  // A chunk that arrived, stored if it had a place, the right size and finite values.
  MixArrived OnFrame(const PeerId& from, const TensorHeader& header, const Bytes& payload);

 private:
  struct Waiting {
    MixSend send;
    ChunkTurn turn;
  };
  // kQueued: all its chunks have left.
  TensorTransport::Sent Advance(Waiting& waiting);
  void Flush(Time now, const PeerId& peer, std::vector<MixSent>& sent);
  std::span<const float> Read(Region region, uint64_t begin, uint64_t count) const;
  std::span<float> Write(Region region, uint64_t begin, uint64_t count);

  TensorTransport& transport_;
  const RegionMemory memory_;
  const Core core_;
  AgentMetrics& metrics_;
  std::vector<Extent> extents_;
  std::vector<std::vector<float>> buffers_;  // by extra region
  PowerEdges<float> power_;                  // of PowerGossip
  std::vector<float> scratch_;
  SendQueues<Waiting> queues_;
};

}  // namespace crowdsurf::worker
