// PeerNode: one agent with its trainer in a chaos world: the host that peer.h asks for.
//
// Gives inputs one at a time with virtual now, executes the actions in order, keeps the regions and
// the bytes, and can die between any two actions, freeze and wake. Owner: ChaosWorld; single
// sequence. Bounds: what a real host bounds is checked by the world.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/down_evidence.h"
#include "base/metrics.h"
#include "simulator/chaos/chaos_scenario.h"
#include "simulator/chaos/peer_checkers.h"
#include "simulator/chaos/virtual_trainer.h"
#include "simulator/engine/event_queue.h"
#include "simulator/engine/node_log.h"
#include "simulator/round/round_node.h"
#include "simulator/round/watched_chunks.h"
#include "worker/core/peer/peer.h"

namespace crowdsurf::simulator {

// What a node asks of its world.
class PeerOutside {
 public:
  virtual ~PeerOutside() = default;
  virtual EventQueue& queue() = 0;
  virtual void SendBody(int from, const PeerId& to, const Bytes& body) = 0;
  virtual void SendChunk(int from, const PeerId& to, const worker::InstanceId& instance,
                         ChunkFrame frame) = 0;
  virtual void Put(int from, const worker::PutRecord& record) = 0;
  virtual void Watch(int node, const std::string& key, bool watch) = 0;
  virtual void OnDeath(int node) = 0;  // also of a node that left
  virtual void OnDeliver(int node, const worker::Deliver& deliver, const RegionBuffer& region) = 0;
  virtual void OnRoundsMoved(int node) = 0;  // a round opened, closed or failed in the last input
  // What a donor of the list holds for (averaging, root); false: nobody that can be reached has it.
  virtual bool FindState(int node, const worker::FetchState& fetch, RegionBuffer& out) = 0;
  virtual RoundCheckers& round_checkers() = 0;
  virtual PeerCheckers& peer_checkers() = 0;
  virtual Origins& origins() = 0;
};

class PeerNode {
 public:
  PeerNode(int index, PeerId id, worker::PeerConfig config, const ChaosScenario& scenario,
           PeerOutside& outside, Rng rng, Violations& violations);

  void Start();
  void OnBody(const PeerId& from, const std::shared_ptr<const Bytes>& body);
  void OnChunk(const PeerId& from, const worker::InstanceId& instance, const ChunkFrame& frame);
  void OnRecords(const std::vector<worker::PeerRecord>& records);
  void OnDown(const PeerId& peer, DownEvidence evidence);
  void Local(const worker::LocalEvent& event);
  void Freeze();
  void Thaw();
  void Kill();
  void DieAfter(uint64_t actions) { dies_after_ = actions; }

  int index() const { return index_; }
  const PeerId& id() const { return id_; }
  bool alive() const { return alive_; }
  bool left() const { return left_; }
  bool started() const { return peer_ != nullptr; }
  uint64_t actions() const { return actions_; }
  bool Knows(const PeerId& peer) const { return known_.contains(peer); }
  worker::PeerSummary Summarize() const { return peer_->Summarize(); }
  const MetricRegistry& metrics() const { return metrics_; }
  // The committed average it can serve: true and copied when it is (averaging, root).
  bool Serves(uint64_t averaging, const Digest& root, RegionBuffer& out) const;

 private:
  struct Donation {
    uint64_t averaging = 0;
    Digest root;
    worker::Region region = worker::Region::kInboxA;
  };
  static TrainerOptions TrainerOf(const ChaosScenario& scenario, const Rng& rng);
  void Do(const std::function<void()>& input);
  void TellProgress();
  void Used(worker::Region region);
  void Run(worker::Actions& actions);  // executes, then arms the timer
  bool Count();
  void Execute(const worker::Action& action);
  void ExecuteLink(const worker::Action& action);
  void ExecuteChunk(const worker::Chunk& chunk);
  void Open(const worker::OpenBuffers& open);
  void Say(const worker::RoundHandle& round, const worker::RoundAction& action);
  void Speak(const worker::SpeakChunk& speak);
  void Fold(worker::RoundHandle round, const worker::FoldChunk& fold);
  void FinishFold(worker::RoundHandle round, const worker::FoldChunk& fold, uint64_t serial);
  void Request(uint64_t averaging);
  void Publish(uint64_t averaging);
  void TakeDelivery(const worker::Deliver& deliver);
  void Fetch(const worker::FetchState& fetch);
  void FinishFetch(const worker::FetchState& fetch, uint64_t serial, int tries);
  void Wake(const worker::WakeAt& wake);
  void ArmTimer();
  RegionBuffer& At(worker::Region region) { return regions_[static_cast<size_t>(region)]; }

  const int index_;
  const PeerId id_;
  const worker::PeerConfig config_;
  const ChaosScenario& scenario_;
  PeerOutside& outside_;
  Rng peer_rng_;
  NodeLog log_;
  MetricRegistry metrics_;
  std::unique_ptr<worker::Peer> peer_;
  VirtualTrainer trainer_;
  WatchedChunks chunks_;
  RegionBuffer regions_[7];

  bool alive_ = true;
  bool left_ = false;
  bool frozen_ = false;
  uint64_t actions_ = 0;
  uint64_t dies_after_ = UINT64_MAX;
  std::deque<std::function<void()>> while_frozen_;
  std::set<PeerId> known_;
  Time armed_ = Time::Infinite();
  const ChunkFrame* offered_ = nullptr;
  std::map<std::pair<worker::RoundHandle, std::pair<uint32_t, worker::Ballot>>, uint64_t> folding_;
  uint64_t serial_ = 0;
  uint64_t wake_serial_ = 0;
  uint64_t fetch_serial_ = 0;
  uint64_t request_serial_ = 0;
  std::optional<Donation> donation_;
  std::optional<SnapshotId> snapshot_;                       // in the outbox
  std::map<worker::Region, WatchedChunks::Opened> made_by_;  // the round that wrote a region
};

}  // namespace crowdsurf::simulator
