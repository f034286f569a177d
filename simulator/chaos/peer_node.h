// PeerNode: one agent with its trainer in a chaos world: an ActionHost that checkers watch.
//
// Before each action the checkers see what it uses; planted faults stand here too. Owner:
// ChaosWorld; single sequence. Bounds: what a real host bounds is checked by the world.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "simulator/chaos/chaos_scenario.h"
#include "simulator/chaos/first_checkers.h"
#include "simulator/chaos/lease_checkers.h"
#include "simulator/chaos/mixing_checkers.h"
#include "simulator/chaos/outer_checkers.h"
#include "simulator/chaos/peer_checkers.h"
#include "simulator/chaos/subnet_checkers.h"
#include "simulator/chaos/virtual_trainer.h"
#include "simulator/host/action_host.h"
#include "simulator/round/round_checkers.h"
#include "simulator/round/watched_chunks.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::simulator {

// What a node asks of its world.
class PeerOutside : public ActionHost<float>::Outside {
 public:
  // `mean`: of the last round; what the trainer is given, unless there is an outer optimizer.
  virtual void OnDeliver(int node, const worker::Deliver& deliver, const RegionBuffer& mean) = 0;
  // An averaging that counts samples only is over; what stands behind its value.
  virtual void OnCounted(int node, const worker::JobCounted& counted, OriginId behind) = 0;
  // rounds: One: a member took the mean of its group, in which its snapshot `own` is.
  virtual void OnGroupMean(int node, const RegionBuffer& mean, SnapshotId own) = 0;
  virtual void OnMixed(int node, const std::vector<float>& result) = 0;  // goes to the trainer
  virtual void OnRoundsMoved(int node) = 0;  // a round opened, closed or failed in the last input
  virtual RoundCheckers& round_checkers() = 0;
  virtual PeerCheckers& peer_checkers() = 0;
  virtual OuterCheckers& outer_checkers() = 0;
  virtual SubnetCheckers& subnet_checkers() = 0;
  virtual LeaseCheckers& lease_checkers() = 0;
  virtual FirstCheckers& first_checkers() = 0;
  virtual MixingCheckers& mixing_checkers() = 0;
  virtual Origins& origins() = 0;
  virtual Violations& violations() = 0;
};

class PeerNode : public ActionHost<float> {
 public:
  PeerNode(int node, const worker::PeerConfig& config, const ChaosScenario& scenario,
           PeerOutside& outside, const Rng& rng);

  // What the trainer was given last: a result that was delivered from `region`.
  const std::vector<float>& Result(worker::Region region) { return At(region).values; }
  const LeaseTrainer* leases() const { return trainer_.leases(); }
  void HealTrainer() { trainer_.Heal(); }
  uint64_t in_parts() const { return in_parts_; }   // snapshots that were told of before their end
  double Made() const { return Totals().samples; }  // samples, by its trainer
  void Leave();
  // The trainer's results since the last averaging are lost, though the node lives.
  void ReplaceTrainer();

 private:
  worker::Progress Totals() const override;
  void RequestSnapshot(worker::AveragingId averaging) override;
  void Wake(const worker::WakeAt& marks) override;
  void StartTrainer() override;
  void AdoptState(worker::Region region) override;
  void TellLeases(const worker::LeasesGranted& granted) override;
  void GiveResult(worker::AveragingId ticket, worker::Region region) override;
  void ReleaseSnapshot(worker::AveragingId ticket) override;
  void TrainUnits(const worker::TellTrainerUnits& units) override { units_ = units.by; }
  void Execute(const worker::Action& action) override;
  void OnActed(const worker::Actions& actions) override;
  void OnOverwritten(worker::Region region) override { made_by_.erase(region); }

  bool Planted(ChaosPlant plant) const {
    return scenario_.plant == plant && scenario_.planted == index();
  }
  void Publish(worker::AveragingId averaging);
  void FillMore();
  void EndFilling();
  void GiveFirst(worker::AveragingId averaging);
  worker::StreamProgress LeaseProgress() const;
  void SeeOpen(const worker::OpenBuffers& open);
  void SeeDelivery(const worker::Deliver& deliver);
  void SeeMean(const worker::Deliver& deliver, const RegionBuffer& mean);
  void SeeUsed(worker::Region region);
  void SeeStep(const worker::RunKernel& kernel);
  void MoveUncovered(worker::Region region);
  // Strategies on graphs (peer_node_mixing.cc). False: a planted fault keeps it from the host.
  bool SeeMixing(const worker::Action& action);
  void SeeTurn(const worker::Action& action);  // rounds: One
  bool SeeMove(const worker::RunKernel& kernel);
  void SeePower(const worker::PowerAction& action);
  void SeeCounting(const worker::OpenBuffers& open);
  WatchedChunks& Watched() { return static_cast<WatchedChunks&>(chunks()); }  // as it was made
  OuterCheckers::State OuterState() {
    return {At(worker::Region::kInboxA).values, At(worker::Region::kVelocity).values};
  }

  const ChaosScenario& scenario_;
  PeerOutside& outside_;
  VirtualTrainer trainer_;
  Rng units_rng_;
  worker::AveragingId units_;  // that the trainer was told last
  uint64_t wake_serial_ = 0;
  uint64_t request_serial_ = 0;
  std::optional<worker::AveragingId> asked_while_held_;  // its trainer has not started yet
  bool declared_ = false;
  bool hides_ = false;                                  // planted: what it has trained
  worker::ViewHash lineage_;                            // of the last round that was opened
  worker::UsePowerEdges power_;                         // PowerGossip's edges now
  worker::Region counts_in_ = worker::Region::kInboxA;  // of the last round that counts only
  std::optional<RegionBuffer> mean_;                    // that an outer optimizer has stepped to
  std::optional<SnapshotId> snapshot_;                  // in the outbox
  struct Filling {                                      // a snapshot that the trainer still copies
    worker::Published published;
    RegionBuffer whole;
    size_t there = 0;                    // values of it that lie in the outbox, from the first on
    bool told = false;                   // the core has heard of some of them
    std::optional<RegionBuffer> result;  // came meanwhile: the trainer takes it in afterwards
  };
  std::optional<Filling> filling_;
  uint64_t in_parts_ = 0;
  Rng filling_rng_;
  std::map<worker::Region, ChunkHost<float>::Opened> made_by_;  // the round that wrote a region
};

}  // namespace crowdsurf::simulator
