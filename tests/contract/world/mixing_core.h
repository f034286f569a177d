// MixingCore: Mixing as the core of an ActionHost: what Peer and Averaging do with it, and no more.
//
// The world makes the views and takes the place of the full average. Owner: one ActionHost; single
// sequence. Allocations of the core are watched.
#pragma once

#include <optional>

#include "base/metrics.h"
#include "simulator/host/hosted_core.h"
#include "worker/core/averaging/mixing.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {

// The tensors of a vector of that length.
TensorViews ViewsOfContract(uint64_t elements);

class MixingCore : public simulator::HostedCore {
 public:
  MixingCore(PeerConfig config, uint64_t elements, Rng rng);

  const Mixing& mixing() const { return mixing_; }
  // The next view, and then, when its full average is over, mixing into `inbox`.
  void EnterView(Time now, const View& view, const ViewHash& hash, Actions& out);
  void StartMixing(Time now, Region inbox, Actions& out);
  void Drain() { mixing_.Drain(); }
  // The job's count is over.
  void OnCounted(Time now, AveragingId averaging, const ModelAge& total, Actions& out);

  void OnMessage(Time now, const PeerId& from, ByteView body, Actions& out) override;
  void OnPeerDown(Time now, const PeerId& peer, DownEvidence evidence, Actions& out) override;
  void OnLocal(Time now, const LocalEvent& event, Actions& out) override;
  void OnTimer(Time now, Actions& out) override;
  Time NextDeadline() const override { return mixing_.NextDeadline(); }
  std::optional<MixPlace> PlaceMix(const MixArrived& chunk) const override;
  void OnMixChunk(Time now, const MixArrived& chunk, Actions& out) override;
  std::optional<MixChunk> DescribeMix(const PeerId& to, MixTag tag, uint64_t sequence,
                                      uint32_t chunk) const override;

 private:
  void SetVector() { mixing_.SetVector(elements_, ViewsOfContract(elements_)); }
  void AskForSnapshot(Actions& out);  // if mixing wants one

  const PeerConfig config_;
  const uint64_t elements_;
  MetricRegistry registry_;
  PeerMetrics metrics_{registry_};
  Mixing mixing_;
  ViewHash view_;
};

}  // namespace crowdsurf::worker
