// PeerWorld: a few real Peers, their trainers and a perfect roster in virtual time, for unit tests.
//
// The agents are the simulator's ActionHost, on doubles. Small on purpose: fixed delays, crashes,
// no loss; the simulator has the rest. Deterministic.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/digest.h"
#include "simulator/host/action_host.h"
#include "tests/unit/worker_core/world/state_transfers.h"
#include "worker/core/port/messages.h"

namespace crowdsurf::worker {

// What this world's hosts call the content hash of a region.
inline Digest RootOf(const std::vector<double>& values) {
  return Sha256({reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(double)});
}

class PeerWorld : public simulator::ActionHost<double>::Outside {
 public:
  using Host = simulator::ActionHost<double>;
  using Values = std::vector<double>;

  class Node : public Host {
   public:
    Node(int number, Setup setup, PeerWorld& world);
    using Host::At;
    // That state, when this node can serve it now; else no average.
    simulator::HeldValues<double> Holds(AveragingId averaging, const Digest& root);
    // What it was to fetch has come.
    void FinishFetch(const FetchState& came) { Host::Execute(came); }

    int island = 0;  // records and messages reach the same island only, until they are equal
    std::vector<std::string> watches;
    // A checkpoint that it can serve, by number and root: of kInboxA.
    std::optional<std::pair<AveragingId, Digest>> restored;
    // trainer
    bool running = false, stopped = false;
    Values x;
    Values began;              // what it started from, or was told to take since
    bool gives_first = false;  // it answers a request also while it is held
    bool silent = false;       // not even then
    uint64_t steps = 0;
    Duration step_time = Milliseconds(10);
    double samples_per_step = 8;
    double drift = 0;  // added to every value each step
    std::optional<AveragingId> publish;
    bool gives_no_snapshot = false;  // its parameters are not finite: the third ends its sitting
    int refused = 0;
    uint64_t wake_steps = 0;
    std::optional<Region> delivered;
    TellTrainerUnits units;     // that it was told last
    bool misses_units = false;  // its snapshots are of other units
    // seen
    std::vector<double> weights;  // own, of every round opened
    std::vector<OpenBuffers> opened;
    std::vector<Deliver> deliveries;
    std::vector<FetchState> fetches;
    std::vector<RunKernel> kernels;
    std::vector<MoveTrainer> moves;
    std::vector<Leave> leaves;
    std::vector<uint64_t> checkpoints;
    bool checkpoint_after_stop = false;

   private:
    Progress Totals() const override;
    void RequestSnapshot(AveragingId averaging) override;
    void Wake(const WakeAt& marks) override { wake_steps = marks.steps; }
    void StartTrainer() override;
    void AdoptState(Region region) override { began = x = At(region).values; }
    void GiveResult(AveragingId, Region region) override { delivered = region; }
    void ReleaseSnapshot(AveragingId) override {}
    void WriteCheckpoint(const worker::WriteCheckpoint& action) override;
    void Stop() override { stopped = true; }
    void TrainUnits(const TellTrainerUnits& told) override { units = told; }
    void Execute(const Action& action) override;
    void OnActed(const Actions& actions) override;
    void OnOverwritten(Region region) override;
    void Step();  // a step boundary: apply, train, publish
    void Publish();

    PeerWorld& world_;
  };

  explicit PeerWorld(uint64_t seed, AveragingConfig averaging, size_t elements = 64)
      : rng_(seed), averaging_(std::move(averaging)), elements_(elements) {}

  // A worker that starts now; its trainer registers after `trainer_delay`.
  size_t Add(Duration trainer_delay = Milliseconds(20), int island = 0,
             std::optional<RestoredCheckpoint> restored = std::nullopt);

  void Local(size_t i, const LocalEvent& event) { nodes_[i]->Local(event); }
  // SIGKILL: connections are reset and refused at once.
  void Kill(size_t i) { nodes_[i]->Kill(); }
  void RunFor(Duration d);
  void At(Duration in, std::function<void()> run) { queue_.After(in, std::move(run)); }
  bool Alive(size_t i) const { return nodes_[i]->alive(); }
  Node& node(size_t i) { return *nodes_[i]; }
  size_t size() const { return nodes_.size(); }
  PeerSummary Summary(size_t i) const { return nodes_[i]->Summarize(); }
  // One peer believes wrongly that another's connections are refused.
  void Slander(size_t at, size_t whom);
  // `at` hears this message, as if `from` had sent it.
  void Tell(size_t at, size_t from, const Message& message);
  void TellBytes(size_t at, size_t from, Bytes body);
  // All live peers are seated in one view of exactly them.
  bool Together() const;
  std::string Describe() const;
  // Runs until Together or `most` is over; returns how long it took.
  std::optional<Duration> UntilTogether(Duration most);
  Time now() const { return queue_.now(); }

  UnitSchema units;                        // of the vector of workers added later
  bool gives_first = false;                // workers added later give their first parameters
  Duration fetch_takes = Milliseconds(5);  // of workers added later
  // From here on state is fetched chunk by chunk. A chunk of so many values takes so long on its
  // donor's link.
  void FetchByChunks(size_t values, Duration takes);
  bool fetch_fails = false;  // no donor serves any longer
  double jitter = 0;         // delays are drawn from [1, 1 + jitter] times the least
  std::function<bool(size_t from, size_t to, const Message&)> lose;  // true: this one gets lost
  std::function<bool(size_t from, size_t to)> lose_news;             // of a changed record

 private:
  // A state transfer under way: the values, and the nodes that held them when it began.
  struct Transfer {
    std::vector<size_t> donors;
    simulator::Buffer<double> values;
    std::optional<simulator::Buffer<double>> velocity;
    bool mixed = false;
    double job_samples = 0;
  };

  simulator::EventQueue& queue() override { return queue_; }
  void SendBody(int from, const PeerId& to, const Bytes& body) override;
  void SendTensor(int from, const PeerId& to, const simulator::TensorFrame& frame) override;
  void Put(int from, const PutRecord& record) override;
  void Watch(int node, const std::string& key) override;
  void Unwatch(int, const std::string&) override {}
  simulator::HeldValues<double> FindState(int node, const FetchState& fetch) override;
  void OnDeath(int node) override;

  void BeginTransfer(int node, const FetchState& fetch);
  void EndTransfer(int node, const FetchState& fetch);
  std::optional<size_t> IndexOf(const PeerId& id) const;
  bool OneIsland(size_t a, size_t b) const { return nodes_[a]->island == nodes_[b]->island; }
  Duration Delay() { return jitter == 0 ? kDelay : kDelay * (1 + jitter * rng_.UniformDouble()); }

  static constexpr Duration kDelay = Microseconds(300);
  static constexpr Duration kLookup = Milliseconds(5);

  Rng rng_;
  AveragingConfig averaging_;
  size_t elements_;
  simulator::EventQueue queue_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<PeerId, size_t> index_;
  std::map<int, Transfer> transfers_;  // by the node that fetches: its last one
  std::unique_ptr<StateTransfers> by_chunks_;
  std::map<std::string, std::map<PeerId, std::pair<Bytes, Time>>> board_;
};

inline AveragingConfig EveryTenSteps(uint16_t group = 4) {
  AveragingConfig config;
  config.group_size = group;
  config.interval = 10;
  config.compression = WireFormat::kFloat32;
  return config;
}

// Every averaging delivered by several peers has the same weight and count at all of them.
inline void ExpectAgreement(PeerWorld& world) {
  std::map<AveragingId, std::pair<double, double>> seen;
  for (size_t i = 0; i < world.size(); ++i) {
    for (const Deliver& d : world.node(i).deliveries) {
      const auto [at, fresh] = seen.try_emplace(d.averaging, d.samples, d.job_samples);
      EXPECT_EQ(at->second.first, d.samples) << "averaging " << d.averaging << " at " << i;
      EXPECT_EQ(at->second.second, d.job_samples) << "averaging " << d.averaging << " at " << i;
    }
    EXPECT_EQ(world.Summary(i).divergence, 0U);
  }
}

}  // namespace crowdsurf::worker
