// ChaosWorld: a job of agents in virtual time, from the scenario to the report.
//
// Two phases: faults until `heal`, while nothing wrong may happen; then links, records and
// suspicion are as they should be, and all who live must meet in one view and deliver one averaging
// with equal bits within `deadline`. Owner: RunChaos; single sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/down_evidence.h"
#include "simulator/chaos/peer_node.h"
#include "simulator/chaos/turn_checkers.h"
#include "simulator/engine/roster_board.h"
#include "simulator/engine/trace.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::simulator {

class ChaosWorld : public PeerOutside {
 public:
  explicit ChaosWorld(const ChaosScenario& scenario);
  ChaosReport Run();

  EventQueue& queue() override { return queue_; }
  void SendBody(int from, const PeerId& to, const Bytes& body) override;
  void SendTensor(int from, const PeerId& to, const TensorFrame& frame) override;
  void Put(int from, const worker::PutRecord& record) override;
  void Watch(int node, const std::string& key) override { board_.Watch(node, key); }
  void Unwatch(int node, const std::string& key) override { board_.Unwatch(node, key); }
  void OnDeath(int node) override;
  void OnDeliver(int node, const worker::Deliver& deliver, const RegionBuffer& mean) override;
  void OnCounted(int node, const worker::JobCounted& counted, OriginId behind) override;
  void OnGroupMean(int node, const RegionBuffer& mean, SnapshotId own) override;
  void OnMixed(int node, const std::vector<float>& result) override;
  void OnRoundsMoved(int node) override;
  HeldValues<float> FindState(int node, const worker::FetchState& fetch) override;
  HeldValues<float> FindNewest(int node, const worker::FetchState& fetch) override;
  RoundCheckers& round_checkers() override { return round_checkers_; }
  PeerCheckers& peer_checkers() override { return peer_checkers_; }
  OuterCheckers& outer_checkers() override { return outer_checkers_; }
  SubnetCheckers& subnet_checkers() override { return subnet_checkers_; }
  LeaseCheckers& lease_checkers() override { return lease_checkers_; }
  FirstCheckers& first_checkers() override { return first_checkers_; }
  MixingCheckers& mixing_checkers() override { return mixing_checkers_; }
  Origins& origins() override { return origins_; }
  Violations& violations() override { return report_.violations; }

 private:
  // instance, from, to, chunk, ballot, kind, rank
  using Resent = std::tuple<worker::InstanceId, int, int, worker::ChunkIndex, worker::Ballot,
                            worker::ChunkArrived::Kind, int>;

  void AddNode(Duration start);
  void Schedule();
  void ScheduleSpells();
  void Heal();
  HeldValues<float> FindAt(int node, const worker::FetchState& fetch,
                           const std::function<HeldValues<float>(const PeerNode& donor)>& held);
  bool CanSend(int from, const PeerId& to);
  uint64_t Arrival(int target) const;
  void Look(int from);
  void LookAtRound(int from, const worker::message::RoundFrame& round);
  void CountSend(int from, int to, const worker::ChunkArrived& chunk);
  void TellDown(int to, int of, DownEvidence evidence, Duration delay);
  struct Rounds;
  bool QuorumLives(const Rounds& rounds);
  bool Together();
  bool MixTogether(const std::vector<PeerNode*>& living);
  std::optional<worker::ViewHash> CommonView(const std::vector<PeerNode*>& living);
  void CheckEnd();
  void SeeLeases(int node, const worker::Deliver& deliver, const RegionBuffer& mean);
  void CheckLeases();
  double Made();
  void SeeMixed(int node);
  void SetStrategy(Duration start, worker::AveragingConfig& config) const;
  void ScheduleSwitches();
  void CheckMixing();
  std::string WhyApart();
  std::vector<PeerNode*> Living();
  PeerNode& At(int node) { return *nodes_[static_cast<size_t>(node)]; }

  const ChaosScenario scenario_;
  Rng rng_;
  EventQueue queue_;
  Network network_;
  Trace trace_;
  Origins origins_;
  ChaosReport report_;
  RoundCheckers round_checkers_;
  PeerCheckers peer_checkers_;
  TurnCheckers turn_checkers_;
  OuterCheckers outer_checkers_;
  SubnetCheckers subnet_checkers_;
  LeaseCheckers lease_checkers_;
  MixingCheckers mixing_checkers_;
  FirstCheckers first_checkers_{report_.violations, scenario_.mild, report_.first};
  RosterBoard board_;
  std::vector<std::unique_ptr<PeerNode>> nodes_;
  std::map<PeerId, int> index_;
  std::set<int> silent_;  // died without a reset
  std::map<std::pair<int, int>, Time> told_down_;
  worker::SharedBytes last_body_;  // the same one often goes to several peers
  std::optional<worker::Message> last_message_;
  std::map<Resent, int> sends_;
  std::map<worker::InstanceId, int> opens_;  // OPEN frames seen
  std::map<worker::ViewHash, std::vector<PeerId>> witnesses_of_;
  struct Rounds {           // of a node
    worker::ViewHash view;  // that its present round is of
    worker::ViewHash lineage;
    worker::RoundTally seen;
    uint64_t broken = 0;  // failed while a quorum of that view's witnesses lived
  };
  std::map<int, Rounds> rounds_;
  // Deliveries since healing: (view, averaging) -> node -> content.
  std::map<std::pair<worker::ViewHash, worker::AveragingId>, std::map<int, std::vector<float>>>
      after_heal_;
  // Where no average is all members': the same of counts; and who was given a result in that view.
  std::map<std::pair<worker::ViewHash, worker::AveragingId>, std::map<int, double>>
      counted_after_heal_;
  std::map<worker::ViewHash, std::set<int>> mixed_after_heal_;
  std::map<int, double> made_at_death_;  // samples, by node
  bool healed_ = false;
};

}  // namespace crowdsurf::simulator
