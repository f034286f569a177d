// ActionHost: the host that peer.h asks for, in virtual time: one agent of a simulated world.
//
// It gives a real Peer its inputs one at a time and executes the actions of each in order; it holds
// the agent's regions and chunks. A world that tests a part of a peer has it host that part alone
// (hosted_core.h). Worlds differ in three places. Outside: how messages and bytes travel. The
// trainer functions: what the user's process does. Execute, OnActed, OnOverwritten and a ChunkHost
// of their own: what checkers see, and faults in the host. A process that is dead loses its inputs;
// one that is frozen takes them when it wakes. Owner: one world; single sequence. Bounds:
// ChunkHost::kMaxBytes of inputs; one state transfer at a time.
#pragma once

#include <absl/functional/function_ref.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/down_evidence.h"
#include "base/metrics.h"
#include "simulator/engine/node_config.h"
#include "simulator/host/chunk_host.h"
#include "simulator/host/hosted_core.h"
#include "simulator/host/process.h"
#include "simulator/host/regions.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/config.h"
#include "worker/core/port/inputs.h"
#include "worker/core/port/peer_summary.h"
#include "worker/core/power/power_edges.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {
class Peer;
}

namespace crowdsurf::simulator {

// A frame of the tensor plane: what it says that it is, and its bytes.
struct TensorFrame {
  std::variant<worker::ChunkArrived, worker::MixArrived> header;
  Parcel parcel;
};

// What an agent's surroundings take.
struct HostTimes {
  Duration registers = kRegisterDelay;  // after the agent's start
  Duration progress = kProgressEvery;   // between two reports that nobody asked for
  Duration fold = Microseconds(50);
  Duration fetch = kFetchTime;  // one try of a state transfer
  int fetch_tries = 5;
  // Of a state: each takes `fetch`. Between two of them its donors may go on.
  size_t fetch_parts = 1;
};

// A committed state that a host holds. No average: it holds none.
template <class Scalar>
struct HeldValues {
  const Buffer<Scalar>* average = nullptr;
  const Buffer<Scalar>* velocity = nullptr;  // null: none, or zeros
  bool mixed = false;                        // parts are of several averages
  double job_samples = 0;                    // when it was committed
  worker::AveragingId averaging = {};
  Digest root = {};
};

template <class Scalar>
class ActionHost : public Process {
 public:
  // What a host asks of its world. `node` is the number of the host that asks.
  class Outside {
   public:
    virtual ~Outside() = default;
    virtual EventQueue& queue() = 0;
    virtual void SendBody(int node, const PeerId& to, const Bytes& body) = 0;
    virtual void SendTensor(int node, const PeerId& to, const TensorFrame& frame) = 0;
    virtual void Put(int node, const worker::PutRecord& record) = 0;
    virtual void Watch(int node, const std::string& key) = 0;
    virtual void Unwatch(int node, const std::string& key) = 0;
    // What a donor of the list holds for (averaging, root). Nothing: no donor that this node
    // reaches has it.
    virtual HeldValues<Scalar> FindState(int node, const worker::FetchState& fetch) = 0;
    // What a donor of the list holds by now.
    virtual HeldValues<Scalar> FindNewest(int /*node*/, const worker::FetchState& /*fetch*/) {
      return {};
    }
    virtual void OnDeath(int node) = 0;  // also of a node that left
  };
  struct Setup {
    worker::PeerConfig config;
    Rng rng;              // the peer's
    size_t elements = 0;  // of the vector
    worker::TensorViews tensors = {};
    worker::UnitSchema units = {};
    bool gives_first = false;  // TrainerRegistered
    HostTimes times = {};
    LogSink* log = nullptr;  // outlives the host
    std::unique_ptr<ChunkHost<Scalar>> chunks = std::make_unique<ChunkHost<Scalar>>();
    std::unique_ptr<HostedCore> core = nullptr;  // null: a Peer, made at the start
  };

  ActionHost(int node, Setup setup, Outside& outside);
  ~ActionHost() override;

  // The agent starts, and its trainer registers a little later.
  void Start();
  void OnBody(const PeerId& from, const worker::SharedBytes& body);
  void OnTensor(const TensorFrame& frame);
  void OnRecords(const std::vector<worker::PeerRecord>& records);
  void OnDown(const PeerId& peer, DownEvidence evidence);
  void Local(const worker::LocalEvent& event);

  bool started() const { return core_ != nullptr; }
  bool left() const { return left_; }
  bool Knows(const PeerId& peer) const { return known_.contains(peer); }
  worker::PeerSummary Summarize() const;  // pre: started; the core is a Peer
  const worker::PeerConfig& config() const { return setup_.config; }
  const MetricRegistry& metrics() const { return metrics_; }
  // The committed state, if it is (averaging, root) and this process can serve it now.
  HeldValues<Scalar> Serves(worker::AveragingId averaging, const Digest& root) const;
  // The one that it can serve now.
  HeldValues<Scalar> Newest() const;

 protected:
  // ---- the trainer
  virtual worker::Progress Totals() const = 0;
  virtual void RequestSnapshot(worker::AveragingId averaging) = 0;
  virtual void Wake(const worker::WakeAt& marks) = 0;
  virtual void StartTrainer() = 0;
  virtual void AdoptState(worker::Region region) = 0;  // in place of its own; before StartTrainer
  virtual void GiveResult(worker::AveragingId ticket,
                          worker::Region region) = 0;  // of the snapshot `ticket`
  virtual void ReleaseSnapshot(worker::AveragingId ticket) = 0;
  virtual void SetLrScale(double /*scale*/) {}
  virtual void TrainUnits(const worker::TellTrainerUnits& /*units*/) {}
  virtual void GatherShare(const worker::TellShare& /*share*/) {}
  virtual void TellLeases(const worker::LeasesGranted& /*granted*/) {}
  virtual void WriteCheckpoint(const worker::WriteCheckpoint&) {}
  virtual void Stop() {}  // the job is over

  // ---- what checkers see, and faults of a host
  virtual void Execute(const worker::Action& action);
  // All actions of an input are done, and it lives.
  virtual void OnActed(const worker::Actions& /*actions*/) {}
  // What lay in the region is void.
  virtual void OnOverwritten(worker::Region /*region*/) {}

  // Runs `input`, called as void(worker::Actions&), when the process is awake; then does what the
  // core asks for.
  template <class Input>
  void Take(Input input) {
    if (started()) Do([this, input = std::move(input)] { Give(input); });
  }
  // Chunk `at` of a message, made of what is there now. Execute sends all of them at once.
  void SendMixChunk(const worker::MixSend& message, uint32_t at);

  // Of the state that AdoptState is called with.
  worker::AveragingId adopted() const { return adopted_; }
  // Gradients: the trainer has made the step that it was given, and left its parameters in kInboxA.
  void StepTaken(worker::AveragingId averaging);

  Buffer<Scalar>& At(worker::Region region) { return regions_.At(region); }
  ChunkHost<Scalar>& chunks() { return *setup_.chunks; }
  Outside& outside() { return outside_; }

 private:
  struct Donation {
    worker::AveragingId averaging = {};
    Digest root;
    worker::Region region = worker::Region::kInboxA;
    worker::StateParts parts = worker::StateParts::kAverage;
    double job_samples = 0;
  };
  // A state that comes in parts.
  struct Coming {
    worker::FetchState fetch;  // as it is asked for by now
    Buffer<Scalar> average, velocity;
    size_t part = 0;  // the next one
    int empty = 0;    // how often no donor had an average just now, in a row
    bool mixed = false;
    double job_samples = 0;
  };
  using FoldKey = std::tuple<worker::RoundHandle, worker::ChunkIndex, worker::Ballot>;

  void OnDeath() override { outside_.OnDeath(index()); }
  void OnTimer() override;
  void Give(absl::FunctionRef<void(worker::Actions&)> input);  // as Take, now
  void TakeFrame(worker::ChunkArrived chunk, const Parcel& parcel);
  void TakeFrame(worker::MixArrived chunk, const Parcel& parcel);
  std::unique_ptr<HostedCore> MakePeer();
  void RegisterTrainer();
  void TellProgress();
  void Overwrite(worker::Region region);
  void FinishFold(worker::RoundHandle round, const worker::FoldChunk& fold, uint64_t serial);
  void Offer(const Donation& offer, const worker::ResultHashes* hashes = nullptr);
  void FetchAfter(Duration delay, const worker::FetchState& fetch, int tries);
  void FinishFetch(const worker::FetchState& fetch, int tries);
  void FetchPart();
  HeldValues<Scalar> FindPart();
  bool Mixes() const;
  void TakeFetched(const worker::FetchState& fetch, const HeldValues<Scalar>& found);
  std::optional<Duration> RoundTripTo(const PeerId& peer) const;

  // ---- actions
  void Act(const worker::Send& action) { outside_.SendBody(index(), action.to, action.body); }
  void Act(const worker::Introduce& action) { known_.insert(action.peer); }
  void Act(const worker::PutRecord& action) { outside_.Put(index(), action); }
  void Act(const worker::WatchKey& action) { outside_.Watch(index(), action.key); }
  void Act(const worker::UnwatchKey& action) { outside_.Unwatch(index(), action.key); }
  void Act(const worker::OpenBuffers& action);
  void Act(const worker::CloseBuffers& action) { chunks().Close(action.round); }
  void Act(const worker::Chunk& action);
  void Act(const worker::SpeakChunk& action);
  void Act(const worker::RequestPublish& action) { RequestSnapshot(action.averaging); }
  void Act(const worker::WakeAt& action) { Wake(action); }
  void Act(const worker::TellShare& action) { GatherShare(action); }
  void Act(const worker::LetStart&) { StartTrainer(); }
  void Act(const worker::Deliver& action);
  void Act(const worker::ReleaseOutbox& action) { ReleaseSnapshot(action.averaging); }
  void Act(const worker::FetchState& action) { FetchAfter(setup_.times.fetch, action, 1); }
  void Act(const worker::WriteCheckpoint& action) { WriteCheckpoint(action); }
  void Act(const worker::RaiseStop&) { Stop(); }
  void Act(const worker::Leave&) { left_ = true; }
  void Act(const worker::ReserveRegions& action) { regions_.Reserve(action); }
  void Act(const worker::RunKernel& action);
  void Act(const worker::PowerAction& action);
  void Act(const worker::MixSend& action);
  void Act(const worker::DeliverMix& action) { GiveResult(action.number, action.region); }
  void Act(const worker::TellLrScale& action) { SetLrScale(action.scale); }
  void Act(const worker::JobCounted&) {}
  void Act(const worker::GrantLeases& action) { TellLeases(action.granted); }
  void Act(const worker::MoveTrainer& action);
  void Act(const worker::OfferState& action) {
    Offer({action.averaging, {}, worker::Region::kInboxA, worker::StateParts::kAverage});
  }
  void Act(const worker::TellTrainerUnits& action) { TrainUnits(action); }
  // of a round
  void ActOn(worker::RoundHandle round, const worker::SendInput& action);
  void ActOn(worker::RoundHandle round, const worker::SendResult& action);
  void ActOn(worker::RoundHandle round, const worker::FoldChunk& action);
  void ActOn(worker::RoundHandle round, const worker::StoreResult& action);
  void ActOn(worker::RoundHandle round, const worker::EmptySlot& action);
  void ActOn(worker::RoundHandle round, const worker::DropInputs& action);
  void ActOn(worker::RoundHandle, const worker::SendFrame&) {}  // these three are in no Chunk
  void ActOn(worker::RoundHandle, const worker::RoundOver&) {}
  void ActOn(worker::RoundHandle, const worker::BranchFormed&) {}

  Setup setup_;
  Outside& outside_;
  MetricRegistry metrics_;
  std::unique_ptr<HostedCore> core_;    // from the start on
  const worker::Peer* peer_ = nullptr;  // the core, if it is one
  Regions<Scalar> regions_;
  worker::PowerEdges<Scalar> power_;
  bool left_ = false;
  std::set<PeerId> known_;
  const Parcel* offered_ = nullptr;         // the RESULT that a StoreResult would store
  std::map<PeerId, uint32_t> chunks_left_;  // since the last timer; each leaves when it is sent
  std::map<FoldKey, uint64_t> folding_;
  uint64_t fold_serial_ = 0;
  std::map<worker::Region, uint64_t> writes_;  // how often what lay there became void
  std::optional<Donation> donation_;
  worker::AveragingId adopted_;
  uint64_t fetch_serial_ = 0;
  Coming coming_;
};

extern template class ActionHost<float>;
extern template class ActionHost<double>;

}  // namespace crowdsurf::simulator
