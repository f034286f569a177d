// RoundWorld: a group in virtual time, from the scenario to the report.
//
// Safety first, then liveness: faults until `heal`; then the network is perfect, everybody wakes
// and suspicion is accurate, and all survivors must end. Owner: RunRound. Single sequence.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "simulator/engine/trace.h"
#include "simulator/round/round_node.h"

namespace crowdsurf::simulator {

class RoundWorld : public RoundOutside {
 public:
  explicit RoundWorld(const RoundScenario& scenario);
  RoundReport Run();

  EventQueue& queue() override { return queue_; }
  void SendFrame(int from, const PeerId& to, const worker::Frame& frame) override;
  void SendChunk(int from, const PeerId& to, ChunkFrame frame) override;
  void OnDeath(int node) override;
  void OnOver(int node, const worker::RoundOver& over, worker::Ballot branch) override;
  RoundCheckers& checkers() override { return checkers_; }

 private:
  void MakeGroup();
  void MakeSpeakers();
  void Schedule();
  void Heal();
  void TellQuorumLost();
  bool AllOver() const;
  bool QuorumLives() const;
  bool HoldersDied() const;
  bool OutOfBallots() const;
  size_t BeatsOnTheirWay() const;
  void CheckEnd();
  worker::CoordinateMask DrawMask(int node, RegionBuffer& values);
  RegionBuffer DrawValues(const std::string& label, SnapshotId snapshot);
  RoundNode& Speaker(int hole, int number);
  RoundNode& At(int node) { return *nodes_[static_cast<size_t>(node)]; }

  const RoundScenario scenario_;
  Rng rng_;
  EventQueue queue_;
  Network network_;
  Trace trace_;
  Origins origins_;
  RoundReport report_;
  RoundCheckers checkers_;
  std::vector<std::unique_ptr<RoundNode>> nodes_;  // members, speakers, outside witnesses
  std::map<PeerId, int> index_;
  worker::RoundSpec spec_;  // but for self and weight
  std::vector<PeerId> witnesses_;
  std::set<int> dead_;
  std::set<int> over_;
  std::set<int> early_over_;  // before healing
  bool healed_ = false;
};

}  // namespace crowdsurf::simulator
