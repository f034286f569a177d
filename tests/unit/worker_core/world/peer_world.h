// PeerWorld: a few real Peers, their trainers and a perfect roster in virtual time, for unit tests.
//
// Small on purpose: fixed delays, crashes, no loss; the simulator has the rest. Deterministic.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/digest.h"
#include "worker/core/peer/peer.h"
#include "worker/core/port/messages.h"
#include "worker/core/reduce/reducer.h"

namespace crowdsurf::worker {

// What this world's hosts call the content hash of a region.
inline Digest RootOf(const std::vector<double>& values) {
  return Sha256({reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(double)});
}

class PeerWorld {
 public:
  using Values = std::vector<double>;

  // Prints what the peers log when CROWDSURF_TEST_LOG is set: for a failing seed.
  class NodeSink : public LogSink {
   public:
    NodeSink(const PeerWorld& world, size_t index) : world_(world), index_(index) {}
    void Write(LogLevel, std::string_view module, std::string_view message,
               std::initializer_list<LogField> fields) override;

   private:
    const PeerWorld& world_;
    size_t index_;
  };

  struct Node {
    PeerConfig config;
    MetricRegistry metrics;
    std::unique_ptr<NodeSink> sink;
    std::unique_ptr<Peer> peer;
    Reducer<double> reducer{64 << 20};
    std::map<Region, Values> regions;
    std::map<RoundHandle, InstanceId> open;
    std::vector<double> weights;  // own, of every round opened
    ByteView result;              // bytes of the RESULT being offered
    bool alive = true;
    int island = 0;  // records and messages reach the same island only, until they are equal
    bool exited = false;
    bool timer_set = false;
    // trainer
    bool running = false, stopped = false;
    Values x;
    uint64_t steps = 0;
    Duration step_time = Milliseconds(10);
    double samples_per_step = 8;
    double drift = 0;  // added to every value each step
    std::optional<AveragingId> publish;
    bool gives_no_snapshot = false;  // its parameters are not finite: the third ends its sitting
    int refused = 0;
    uint64_t wake_steps = 0;
    std::optional<Deliver> delivered;
    // seen
    std::vector<Deliver> deliveries;
    std::vector<std::string> left;
    std::vector<FetchState> fetches;
    std::map<std::pair<AveragingId, Digest>, Values> serves;
    std::vector<uint64_t> checkpoints;
    bool checkpoint_after_stop = false;
    std::vector<std::string> watches;
  };

  explicit PeerWorld(uint64_t seed, AveragingConfig averaging, size_t elements = 64)
      : rng_(seed), averaging_(std::move(averaging)), elements_(elements) {}

  // A worker that starts now; its trainer registers after `trainer_delay`.
  size_t Add(Duration trainer_delay = Milliseconds(20), int island = 0,
             std::optional<RestoredCheckpoint> restored = std::nullopt);

  void Local(size_t i, const LocalEvent& event);
  // SIGKILL: connections are reset and refused at once.
  void Kill(size_t i);
  void RunFor(Duration d);
  void At(Duration in, std::function<void()> run) {
    queue_.push({now_ + in, serial_++, std::move(run)});
  }
  bool Alive(size_t i) const { return nodes_[i]->alive && !nodes_[i]->exited; }
  Node& node(size_t i) { return *nodes_[i]; }
  size_t size() const { return nodes_.size(); }
  PeerSummary Summary(size_t i) const { return nodes_[i]->peer->Summarize(); }
  // One peer believes wrongly that another's connections are refused.
  void Slander(size_t at, size_t whom);
  // `at` hears this message, as if `from` had sent it.
  void Tell(size_t at, size_t from, const Message& message);
  // All live peers are seated in one view of exactly them.
  bool Together() const;
  std::string Describe() const;
  // Runs until Together or `most` is over; returns how long it took.
  std::optional<Duration> UntilTogether(Duration most);
  Time now() const { return now_; }

  bool fetch_fails = false;
  Duration fetch_takes = Milliseconds(5);
  double jitter = 0;  // delays are drawn from [1, 1 + jitter] times the least
  std::function<bool(size_t from, size_t to, const Message&)> lose;  // true: this one gets lost
  std::function<bool(size_t from, size_t to)> lose_news;             // of a changed record

 private:
  struct Event {
    Time at;
    uint64_t serial;
    std::function<void()> run;
    bool operator<(const Event& o) const { return at != o.at ? at > o.at : serial > o.serial; }
  };

  // give(out): an input to the peer; what it asks for is done.
  template <class F>
  void Input(size_t i, F&& give) {
    if (!Alive(i)) return;
    Actions out;
    give(out);
    for (Action& action : out) Execute(i, action);
    Schedule(i);
  }
  void Schedule(size_t i);
  std::optional<size_t> IndexOf(const PeerId& id) const;

  Duration Delay() { return jitter == 0 ? delay_ : delay_ * (1 + jitter * rng_.UniformDouble()); }

  void ChunkTo(size_t from, const PeerId& to, ChunkArrived chunk, Bytes bytes);

  void Execute(size_t i, Action& action) {
    std::visit([&](auto& a) { Do(i, a); }, action);
  }
  void Do(size_t i, const Send& a);
  void Do(size_t, const Introduce&) {}
  void Do(size_t i, const PutRecord& a);
  void Do(size_t i, const WatchKey& a);
  void Do(size_t, const UnwatchKey&) {}
  void Do(size_t i, const OpenBuffers& a);
  void Do(size_t i, const CloseBuffers& a);
  void Do(size_t i, Chunk& a);
  void Do(size_t i, const SpeakChunk& a);
  void Do(size_t i, const RequestPublish& a);
  void Do(size_t i, const WakeAt& a);
  void Do(size_t i, const LetStart&);
  void Do(size_t i, const Deliver& a);
  void Do(size_t, const ReleaseOutbox&) {}
  void Do(size_t i, const FetchState& a);
  void Do(size_t i, const WriteCheckpoint& a);
  void Do(size_t i, const RaiseStop&);
  // Strategies on graphs have a world of their own: tests/contract.
  void Do(size_t, const ReserveRegions&) {}
  void Do(size_t, const RunKernel&) {}
  void Do(size_t, const MixSend&) {}
  void Do(size_t, const DeliverMix&) {}
  void Do(size_t, const TellLrScale&) {}
  void Do(size_t, const JobCounted&) {}
  void Do(size_t, const PowerAction&) {}
  void Do(size_t i, const Leave& a);

  void StartTrainer(size_t i);
  // A step boundary: apply, train, publish.
  void Step(size_t i);

  Rng rng_;
  AveragingConfig averaging_;
  size_t elements_;
  Time now_ = Time::FromNanoseconds(1'000'000'000);
  uint64_t serial_ = 0;
  uint64_t events_ = 0;
  Duration delay_ = Microseconds(300);
  Duration lookup_ = Milliseconds(5);
  std::priority_queue<Event> queue_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<PeerId, size_t> index_;
  std::map<std::string, std::map<PeerId, std::pair<Bytes, Time>>> board_;
  std::map<std::pair<size_t, RoundHandle>, int> selfs_;
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
