// DescentNode: one agent and its trainer in a descent: executes the actions of a real Peer in
// virtual time, keeps its regions, moves its bytes.
//
// The least host that peer.h can have: no faults of its own but death, no checkers. Owner:
// DescentWorld; single sequence. Bounds: kMaxBytes of inputs; one request and one state transfer
// at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "simulator/descent/descent.h"
#include "simulator/descent/descent_trainer.h"
#include "simulator/engine/event_queue.h"
#include "simulator/engine/node_log.h"
#include "worker/core/peer/peer.h"
#include "worker/core/round/reducer.h"

namespace crowdsurf::simulator {

// What a node asks of its world.
class DescentOutside {
 public:
  virtual ~DescentOutside() = default;
  virtual EventQueue& queue() = 0;
  virtual void SendBody(int from, const PeerId& to, const Bytes& body) = 0;
  virtual void SendChunk(int from, const PeerId& to, const worker::ChunkArrived& chunk,
                         Bytes wire) = 0;
  virtual void SendMix(int from, const PeerId& to, const worker::MixArrived& chunk, Bytes wire) = 0;
  virtual void Put(int from, const worker::PutRecord& record) = 0;
  virtual void Watch(int node, const std::string& key, bool watch) = 0;
  // What a donor of the list holds for (averaging, root); nullptr: none of them lives and has it.
  virtual const std::vector<float>* FindState(const worker::FetchState& fetch) = 0;
};

class DescentNode {
 public:
  static constexpr size_t kMaxBytes = 1 << 24;

  DescentNode(int index, worker::PeerConfig config, const DescentOptions& options,
              DescentTrainer trainer, Duration step_time, Rng rng, DescentOutside& outside);

  void Start();
  void Kill();
  void OnBody(const PeerId& from, const Bytes& body);
  void OnChunk(worker::ChunkArrived chunk, const Bytes& wire);
  void OnMix(const worker::MixArrived& chunk, const Bytes& wire);
  void OnRecords(const std::vector<worker::PeerRecord>& records);
  void OnDown(const PeerId& peer);

  int index() const { return index_; }
  const PeerId& id() const { return config_.id; }
  bool alive() const { return alive_; }
  bool Knows(const PeerId& peer) const { return known_.contains(peer); }
  worker::PeerSummary Summarize() const { return peer_->Summarize(); }
  bool started() const { return peer_ != nullptr; }
  const DescentTrainer& trainer() const { return trainer_; }
  Time last_result() const { return last_result_; }
  // The committed average it can serve; nullptr: another, or none.
  const std::vector<float>* Serves(uint64_t averaging, const Digest& root) const;

 private:
  struct Donation {
    uint64_t averaging = 0;
    Digest root;
    worker::Region region = worker::Region::kInboxA;
  };
  struct Open {
    worker::InstanceId instance;
    int self = 0;
  };

  template <class Input>
  void Give(Input&& input);
  void Local(const worker::LocalEvent& event);
  void Execute(const worker::Action& action);
  void ArmTimer();
  // actions
  void Do(const worker::Send& action);
  void Do(const worker::Introduce& action) { known_.insert(action.peer); }
  void Do(const worker::PutRecord& action);
  void Do(const worker::WatchKey& action);
  void Do(const worker::UnwatchKey& action);
  void Do(const worker::OpenBuffers& action);
  void Do(const worker::CloseBuffers& action);
  void Do(const worker::Chunk& action);
  void Do(const worker::SpeakChunk& action);
  void Do(const worker::RequestPublish& action) { trainer_.Request(action.averaging); }
  void Do(const worker::WakeAt& action);
  void Do(const worker::LetStart&) { StartTrainer(); }
  void Do(const worker::Deliver& action);
  void Do(const worker::ReleaseOutbox& action);
  void Do(const worker::FetchState& action);
  void Do(const worker::WriteCheckpoint&) {}
  void Do(const worker::RaiseStop&) {}
  void Do(const worker::Leave&) { Kill(); }
  void Do(const worker::ReserveRegions& action);
  void Do(const worker::RunKernel& action);
  void Do(const worker::MixSend& action);
  void Do(const worker::DeliverMix& action);
  void Do(const worker::TellLrScale& action) { trainer_.SetLrScale(action.scale); }
  void Do(const worker::JobCounted&) {}
  // trainer
  void StartTrainer();
  void NextStep();
  void StepDone();
  void GiveResult(uint64_t ticket, worker::Region region);
  void RingMarks();
  void TellProgress();

  std::span<float> Part(worker::Region region, const worker::Extent& range);
  std::vector<float>& At(worker::Region region);
  void Overwritten(worker::Region region);

  const int index_;
  const worker::PeerConfig config_;
  const DescentOptions& options_;
  DescentOutside& outside_;
  const Duration step_time_;
  Rng rng_;
  NodeLog log_;
  MetricRegistry metrics_;
  DescentTrainer trainer_;
  std::unique_ptr<worker::Peer> peer_;
  worker::Reducer<float> reducer_{kMaxBytes};
  std::map<worker::RoundHandle, Open> open_;
  const Bytes* offered_ = nullptr;  // the RESULT chunk being looked at

  std::vector<float> outbox_, inboxes_[2];
  std::vector<std::vector<float>> extras_;
  std::vector<worker::Extent> extents_;

  bool alive_ = true;
  bool running_ = false;  // the trainer
  std::set<PeerId> known_;
  Time armed_ = Time::Infinite();
  std::optional<uint64_t> mark_;  // of steps: wake the agent
  uint64_t fetch_serial_ = 0;
  std::optional<Donation> donation_;
  Time last_result_;
};

}  // namespace crowdsurf::simulator
