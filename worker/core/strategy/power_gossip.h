// PowerGossip: gossip along a graph, where each edge carries a few vectors instead of matrices.
//
// Source: PowerGossip (Vogels, Karimireddy, Jaggi 2020, arXiv 2008.01425), algorithms 1 and 2, and
// docs/strategies. Every interval: a snapshot of the trainer; `iterations` steps on it, each of
// which exchanges one frame with every neighbour and then adds all their updates (Jacobi); the
// result is delivered, and the trainer adds the change to what it has by then. One step at a time:
// the next snapshot holds the updates of the last, because pipelined updates diverge. The ends of
// an edge add opposite updates, so the mean of all stays. A view begins with a full average, and
// warm factors of edges that stay. Differs from the released code: any graph and any n, weights of
// Metropolis, no global step, edges that die. Owner: Mixing, single sequence. Memory: four frames
// an edge (power_frames.h), and the factors at the host.
#pragma once

#include <memory>

#include "worker/core/strategy/mixing_interval.h"
#include "worker/core/strategy/strategy.h"
#include "worker/core/view/topology.h"

namespace crowdsurf::worker {

class PowerGossip : public Strategy {
 public:
  Needs needs() const override { return NeedsOf(StrategyKind::kPowerGossip); }
  void SetVector(uint64_t elements, const EdgeMailbox&) override { elements_ = elements; }
  void SetTensors(const TensorViews& tensors) override { tensors_ = tensors; }
  void OnView(Time now, const View& view, const PeerId& self, StrategyActions& out) override;
  void OnEvent(Time now, const Event& event, StrategyActions& out) override;

 private:
  enum class Stage : uint8_t { kWaiting, kAsked, kExchanging };
  UsePowerEdges EdgesOf(const Topology& topology) const;
  void AskWhenDue(Time now, StrategyActions& out);
  void OnSnapshot(Time now, const SnapshotTaken& snapshot, StrategyActions& out);
  void BeginStep(StrategyActions& out);
  void EndStep(Time now, const FramesHere& here, StrategyActions& out);

  uint64_t elements_ = 0;
  TensorViews tensors_;
  uint32_t iterations_ = 1;
  MixingInterval interval_;
  std::shared_ptr<const PowerFrames> frames_;
  WireFormat wire_ = WireFormat::kFloat32;
  bool alone_ = true;

  Region inbox_ = Region::kInboxB;
  bool started_ = false;
  Stage stage_ = Stage::kWaiting;
  uint64_t step_ = 0;       // of the view
  uint32_t iteration_ = 0;  // on the present snapshot
};

}  // namespace crowdsurf::worker
