// Mix plane: executes the actions of strategies on graphs that touch tensor bytes.
//
// Between Peer (decides), SendPlane (says whose turn it is), the link's regions and the strategy's
// own buffers, which lie here. A message leaves chunk by chunk as fast as its peer's queue takes
// it; what a chunk is made of is asked of the core at that moment (DescribeMix), so a late chunk
// carries the latest, and nothing is copied but the chunk. Host thread only. Bounds: the regions
// that the core declares (ReserveRegions); a message per peer and tag waits (send_plane.h), a newer
// one takes its place (chunk_turn.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "worker/core/port/actions.h"
#include "worker/core/port/inputs.h"
#include "worker/core/power/power_edges.h"
#include "worker/core/vector/mix.h"
#include "worker/edge/metrics/agent_metrics.h"
#include "worker/edge/tensor/chunk_plane.h"
#include "worker/edge/tensor/send_plane.h"

namespace crowdsurf::worker {

class MixPlane : public Sender {
 public:
  struct Core {  // Peer's answers
    std::function<std::optional<MixPlace>(const MixArrived&)> place;
    std::function<std::optional<MixChunk>(const PeerId&, MixTag, uint64_t, uint32_t)> describe;
  };

  // References outlive the plane.
  MixPlane(SendPlane& sends, RegionMemory memory, Core core, AgentMetrics& metrics)
      : sends_(sends), memory_(std::move(memory)), core_(std::move(core)), metrics_(metrics) {}

  // What was reserved before is void.
  void Reserve(const ReserveRegions& reserve);
  // Pre: the regions are the link's or reserved, and hold the range.
  void Run(const RunKernel& kernel);
  void Run(const PowerAction& action);
  void Send(Time now, const MixSend& send);
  // The messages whose last chunk has left since the last call, or that are void. One that is
  // dropped with its dead peer is none of them.
  std::vector<MixSent> TakeSent() { return std::exchange(sent_, {}); }
  Tried Try(const PeerId& to, WaitingSend& what) override;
  // A chunk that arrived, stored if it had a place, the right size and finite values.
  MixArrived OnFrame(const PeerId& from, const TensorHeader& header, const Bytes& payload);

 private:
  SharedBytes Encode(const MixChunk& chunk);
  std::span<const float> Read(Region region, uint64_t begin, uint64_t count) const;
  std::span<float> Write(Region region, uint64_t begin, uint64_t count);

  SendPlane& sends_;
  const RegionMemory memory_;
  const Core core_;
  AgentMetrics& metrics_;
  std::vector<Extent> extents_;
  std::vector<std::vector<float>> buffers_;  // by extra region
  PowerEdges<float> power_;                  // of PowerGossip
  std::vector<float> scratch_;
  std::vector<MixSent> sent_;  // until TakeSent
};

}  // namespace crowdsurf::worker
