// VirtualTrainer: the user's process as an agent sees it: it steps, publishes snapshots at step
// boundaries, and takes results.
//
// Its parameters are a few floats that drift at random. Steps are not events: totals are computed
// from the clock. It also watches the link's rules (one result a snapshot, no snapshot replaced
// while it is in use). Owner: one PeerNode; single sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/rng.h"
#include "base/time.h"
#include "simulator/chaos/lease_trainer.h"
#include "simulator/engine/origins.h"
#include "simulator/engine/violations.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/inputs.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::simulator {

struct TrainerOptions {
  uint32_t elements = 8;
  Duration step_time = Milliseconds(50);
  double samples_per_step = 4;
  double refuse = 0;           // chance that a snapshot has a NaN in it
  worker::DataSpec data = {};  // it draws leases of that, a unit a step (ChaosScenario::data)
};

class VirtualTrainer {
 public:
  VirtualTrainer(int node, TrainerOptions options, Rng rng, Violations& violations);

  bool started() const { return started_; }
  void Start(Time now);  // from its own parameters, or from those adopted
  void Adopt(Time now, const RegionBuffer& region);
  void Take(Time now, const worker::LeasesGranted& granted) {
    if (leases_) leases_->Take(now, granted);
  }

  uint64_t Steps(Time now) const;
  double Samples(Time now) const;
  Time NextBoundary(Time now) const;
  // When the totals pass either mark, if it has leases enough; Infinite: never.
  Time Passes(Time now, uint64_t steps, double samples) const;

  // At a step boundary. The snapshot goes into `outbox`; false: refused, nothing was written.
  bool Publish(worker::AveragingId averaging, SnapshotId snapshot, OriginId origin,
               RegionBuffer& outbox);
  void OnDeliver(worker::AveragingId averaging, const RegionBuffer& outbox,
                 const RegionBuffer& result);
  void OnRelease(worker::AveragingId averaging);
  // From now on every snapshot is finite.
  void Heal() { refuse_ = 0; }
  double refuse() const { return refuse_; }
  std::optional<SnapshotId> in_use() const { return in_use_; }
  const std::vector<float>& parameters() const { return parameters_; }
  const LeaseTrainer* leases() const { return leases_ ? &*leases_ : nullptr; }

 private:
  void Add(std::string_view statement, const std::string& what);

  const int node_;
  const TrainerOptions options_;
  double refuse_;  // chance that the next snapshot has a NaN in it
  Rng rng_;
  Violations& violations_;
  std::optional<LeaseTrainer> leases_;
  std::vector<float> parameters_;
  bool started_ = false;
  Time since_;
  std::optional<SnapshotId> in_use_;
  worker::AveragingId published_;  // averaging of the snapshot in the outbox
};

}  // namespace crowdsurf::simulator
