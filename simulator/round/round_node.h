// RoundNode: one agent of a round's world: member, stand-in or witness.
//
// It is the host that round.h asks for: it gives inputs one at a time, executes the actions in
// order, and can die between any two of them, or freeze. Owner: RoundWorld; single sequence.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "simulator/host/process.h"
#include "simulator/round/round_scenario.h"
#include "simulator/round/watched_chunks.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/round/round.h"
#include "worker/core/round/round_pacer.h"
#include "worker/core/round/speaker.h"
#include "worker/core/view/witness.h"

namespace crowdsurf::simulator {

// A chunk on the tensor plane.
struct ChunkFrame {
  bool result = false;
  int rank = 0;  // inputs: whose values
  worker::ChunkIndex chunk = {};
  worker::Ballot assigned = 0;
  worker::RankSet mask = {};  // results
  uint64_t hash = 0;          // results
  Parcel parcel;
};

// What a node asks of its world.
class RoundOutside {
 public:
  virtual ~RoundOutside() = default;
  virtual EventQueue& queue() = 0;
  virtual void SendFrame(int from, const PeerId& to, const worker::Frame& frame) = 0;
  virtual void SendChunk(int from, const PeerId& to, ChunkFrame frame) = 0;
  virtual void OnDeath(int node) = 0;
  // `branch`: the ballot of the branch that it ended in, 0 none.
  virtual void OnOver(int node, const worker::RoundOver& over, worker::Ballot branch) = 0;
  virtual RoundCheckers& checkers() = 0;
};

class RoundNode : public Process {
 public:
  RoundNode(const ProcessName& name, const RoundScenario& scenario, RoundOutside& outside,
            Origins& origins);

  // Before the run, one of these or neither.
  void BeMember(worker::RoundSpec spec, RegionBuffer input, worker::CoordinateMask mask);
  void BeSpeaker(std::vector<worker::SpeakerSpec> duties, RegionBuffer values);
  void SetWitnesses(std::vector<PeerId> witnesses) { witnesses_ = std::move(witnesses); }

  void Start();
  // The members' part of Start() comes that much later.
  void DelaySnapshot(Duration after) { snapshot_after_ = after; }
  void OnFrame(const PeerId& from, const worker::Frame& frame);
  void OnChunk(const PeerId& from, const ChunkFrame& frame);
  void OnSuspicion(const PeerId& of, worker::SuspicionCause cause);
  void OnTrust(const PeerId& of);
  void OnQuorumLost();
  void OnWindow(const PeerId& owner, uint32_t chunks);

  const std::optional<worker::Round>& round() const { return round_; }
  worker::Ballot branch() const { return branch_; }  // 0: in none
  int rank() const { return spec_ ? spec_->self : -1; }
  std::vector<Bytes> Slots() { return chunks_.Slots(kRound); }
  // True while what it holds counts: a member that has not given up.
  bool Holding() const;

 private:
  static constexpr worker::RoundHandle kRound = 1;

  void OnDeath() override { outside_.OnDeath(index()); }
  void OnTimer() override;
  void OpenRound();
  void AfterInput(worker::RoundActions& actions);
  void Execute(const worker::RoundAction& action, worker::Ballot branch);
  void Say(const worker::RoundAction& action);
  void ExecuteSpeaker(worker::SpeakerActions& actions, const worker::Speaker& speaker);
  void Fold(const worker::FoldChunk& fold);
  void FinishFold(const worker::FoldChunk& fold, uint64_t serial);
  void TakeResult(const PeerId& from, const ChunkFrame& frame);
  void TakeInput(const PeerId& from, const ChunkFrame& frame);
  void AnswerAsWitness(const PeerId& from, const worker::Frame& frame);
  void Pace();
  void SayFrame(const PeerId& to, worker::Frame frame);
  void ForgeHaves();

  const RoundScenario& scenario_;
  RoundOutside& outside_;
  Duration snapshot_after_;
  worker::Ballot branch_ = 0;

  std::optional<worker::RoundSpec> spec_;  // until opened, then a copy
  std::vector<PeerId> witnesses_;
  RegionBuffer input_;
  RegionBuffer output_;
  worker::CoordinateMask mask_;
  WatchedChunks chunks_;
  std::optional<worker::Round> round_;
  std::vector<std::pair<PeerId, worker::Frame>> early_;
  std::vector<std::pair<PeerId, ChunkFrame>> early_chunks_;
  const ChunkFrame* offered_ = nullptr;  // the result that a StoreResult would store
  // Serial of a pending fold.
  std::map<std::pair<worker::ChunkIndex, worker::Ballot>, uint64_t> folding_;
  uint64_t next_fold_ = 0;
  std::vector<worker::Speaker> speakers_;
  worker::WitnessTable table_;
  worker::RoundTimes times_;
  std::optional<worker::RoundPacer> pacer_;
  std::set<PeerId> suspected_;
};

}  // namespace crowdsurf::simulator
