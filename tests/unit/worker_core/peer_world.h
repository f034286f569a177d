// PeerWorld: a few real Peers, their trainers and a perfect roster in virtual time, for unit tests.
//
// Small on purpose: fixed delays, crashes, no loss; the simulator has the rest. Deterministic.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/digest.h"
#include "worker/core/messages.h"
#include "worker/core/peer.h"
#include "worker/core/reducer.h"

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
               std::initializer_list<LogField> fields) override {
      if (std::getenv("CROWDSURF_TEST_LOG") == nullptr) return;
      std::string line = std::string(module) + ": " + std::string(message);
      for (const LogField& f : fields) line += " " + std::string(f.key) + "=" + f.value;
      std::fprintf(stderr, "%.6f w%zu %s\n", world_.now().seconds(), index_, line.c_str());
    }

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
    std::optional<uint64_t> publish;
    uint64_t wake_steps = 0;
    std::optional<Deliver> delivered;
    // seen
    std::vector<Deliver> deliveries;
    std::vector<std::string> left;
    std::vector<FetchState> fetches;
    std::map<std::pair<uint64_t, Digest>, Values> serves;
    std::vector<uint64_t> checkpoints;
    bool checkpoint_after_stop = false;
    std::vector<std::string> watches;
  };

  explicit PeerWorld(uint64_t seed, AveragingConfig averaging, size_t elements = 64)
      : rng_(seed), averaging_(averaging), elements_(elements) {}

  // A worker that starts now; its trainer registers after `trainer_delay`.
  size_t Add(Duration trainer_delay = Milliseconds(20), int island = 0,
             std::optional<RestoredCheckpoint> restored = std::nullopt) {
    const size_t i = nodes_.size();
    nodes_.push_back(std::make_unique<Node>());
    Node& n = *nodes_[i];
    n.island = island;
    std::array<uint8_t, 32> id{};
    Rng ids = rng_.Fork("id" + std::to_string(i));
    for (uint8_t& b : id) b = static_cast<uint8_t>(ids.Next());
    n.config.job = "job";
    n.config.worker = "w" + std::to_string(i);
    n.config.id = PeerId(id);
    n.config.peer_endpoint = "h" + std::to_string(i) + ":1";
    n.config.tensor_endpoint = "h" + std::to_string(i) + ":2";
    n.config.started_unix_ms = 1'000 + static_cast<int64_t>(now_.seconds() * 1e3);
    n.config.averaging = averaging_;
    n.config.chunk_elements = 8;
    for (const Region r : {Region::kOutbox, Region::kInboxA, Region::kInboxB})
      n.regions[r].assign(elements_, 0.0);
    n.x.assign(elements_, 0.0);
    for (size_t e = 0; e < elements_; ++e) n.x[e] = static_cast<double>(e % 7);
    index_[n.config.id] = i;
    n.sink = std::make_unique<NodeSink>(*this, i);
    n.peer = std::make_unique<Peer>(n.config, rng_.Fork("peer" + std::to_string(i)),
                                    Logger(n.sink.get(), "peer", LogLevel::kDebug), n.metrics);
    Input(i, [&](Actions& out) { n.peer->Start(now_, out); });
    At(trainer_delay, [this, i, restored] {
      if (Alive(i) && restored) Local(i, *restored);
      if (Alive(i)) Local(i, TrainerRegistered{Sha256(AsBytes("table")), elements_, true});
    });
    return i;
  }

  void Local(size_t i, const LocalEvent& event) {
    Input(i, [&](Actions& out) { nodes_[i]->peer->OnLocal(now_, event, out); });
  }
  // SIGKILL: connections are reset and refused at once.
  void Kill(size_t i) {
    nodes_[i]->alive = false;
    for (size_t j = 0; j < nodes_.size(); ++j) {
      if (j == i) continue;
      At(delay_, [this, i, j] {
        if (Alive(j))
          Input(j, [&](Actions& out) {
            nodes_[j]->peer->OnPeerDown(now_, nodes_[i]->config.id, true, out);
          });
      });
    }
  }
  void RunFor(Duration d) {
    const Time end = now_ + d;
    while (!queue_.empty() && queue_.top().at <= end) {
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.at;
      event.run();
      CHECK_LT(++events_, 20'000'000U);
    }
    now_ = end;
  }
  void At(Duration in, std::function<void()> run) {
    queue_.push({now_ + in, serial_++, std::move(run)});
  }
  bool Alive(size_t i) const { return nodes_[i]->alive && !nodes_[i]->exited; }
  Node& node(size_t i) { return *nodes_[i]; }
  size_t size() const { return nodes_.size(); }
  PeerSummary Summary(size_t i) const { return nodes_[i]->peer->Summarize(); }
  // One peer believes wrongly that another's connections are refused.
  void Slander(size_t at, size_t whom) {
    Input(at, [&](Actions& out) {
      nodes_[at]->peer->OnPeerDown(now_, nodes_[whom]->config.id, true, out);
    });
  }
  // `at` hears this message, as if `from` had sent it.
  void Tell(size_t at, size_t from, const Message& message) {
    Input(at, [&](Actions& out) {
      nodes_[at]->peer->OnMessage(now_, nodes_[from]->config.id, EncodeMessage(message), out);
    });
  }
  // All live peers are seated in one view of exactly them.
  bool Together() const {
    std::optional<ViewHash> hash;
    size_t live = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) live += Alive(i);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!Alive(i)) continue;
      const PeerSummary s = Summary(i);
      if (!s.view || s.view->members != live || (hash && *hash != s.view->hash)) return false;
      hash = s.view->hash;
    }
    return hash.has_value();
  }
  std::string Describe() const {
    std::string text;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!Alive(i)) continue;
      const PeerSummary s = Summary(i);
      text += "\n  w" + std::to_string(i) + " " + NameOf(s.state) + " averaging " +
              std::to_string(s.averaging);
      if (s.view)
        text += " view " + s.view->hash.brief() + " of " + std::to_string(s.view->members);
    }
    return text;
  }
  // Runs until Together or `most` is over; returns how long it took.
  std::optional<Duration> UntilTogether(Duration most) {
    const Time start = now_;
    while (now_ - start < most) {
      RunFor(Milliseconds(5));
      if (Together()) return now_ - start;
    }
    return std::nullopt;
  }
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

  template <class F>
  void Input(size_t i, F&& give) {
    if (!Alive(i)) return;
    Actions out;
    give(out);
    for (Action& action : out) Execute(i, action);
    Schedule(i);
  }
  void Schedule(size_t i) {
    Node& n = *nodes_[i];
    if (n.timer_set || !Alive(i)) return;
    const Time next = n.peer->NextDeadline();
    if (next.infinite()) return;
    n.timer_set = true;
    // Look again when the deadline comes: it may have moved; and not later than in 5 ms, because
    // it may have moved forward.
    const Time at = std::min(std::max(next, now_ + Microseconds(1)), now_ + Milliseconds(5));
    queue_.push({at, serial_++, [this, i] {
                   nodes_[i]->timer_set = false;
                   if (!Alive(i)) return;
                   if (nodes_[i]->peer->NextDeadline() <= now_)
                     Input(i, [&](Actions& out) { nodes_[i]->peer->OnTimer(now_, out); });
                   Schedule(i);
                 }});
  }
  std::optional<size_t> IndexOf(const PeerId& id) const {
    const auto at = index_.find(id);
    if (at == index_.end()) return std::nullopt;
    return at->second;
  }

  Duration Delay() { return jitter == 0 ? delay_ : delay_ * (1 + jitter * rng_.UniformDouble()); }

  void ChunkTo(size_t from, const PeerId& to, ChunkArrived chunk, Bytes bytes) {
    const auto j = IndexOf(to);
    if (!j) return;
    At(Delay(), [this, from, j = *j, chunk, bytes = std::move(bytes)]() mutable {
      if (!Alive(j)) return;
      Node& n = *nodes_[j];
      chunk.from = nodes_[from]->config.id;
      const auto handle = n.reducer.Find(chunk.instance);
      const bool sound = handle && n.reducer.IsSound(*handle, chunk.chunk, bytes);
      n.result = bytes;
      chunk.finite = sound;
      if (chunk.kind == ChunkArrived::Kind::kResult &&
          (!sound || ContentHash(bytes, ContentKey(chunk.instance)) != chunk.hash))
        return;
      // Keep before the actions run: a fold may follow at once.
      Actions out;
      const bool keep = n.peer->OnChunk(now_, chunk, out);
      if (keep) n.reducer.KeepInput(*handle, chunk.rank, chunk.chunk, chunk.assigned, bytes);
      for (Action& action : out) Execute(j, action);
      n.result = {};
      Schedule(j);
    });
  }

  void Execute(size_t i, Action& action) {
    std::visit([&](auto& a) { Do(i, a); }, action);
  }
  void Do(size_t i, const Send& a) {
    const auto j = IndexOf(a.to);
    if (!j || nodes_[i]->island != nodes_[*j]->island) return;
    if (lose && lose(i, *j, *DecodeMessage(a.body))) return;
    At(Delay(), [this, i, j = *j, body = a.body] {
      if (Alive(j))
        Input(j, [&](Actions& out) {
          nodes_[j]->peer->OnMessage(now_, nodes_[i]->config.id, body, out);
        });
    });
  }
  void Do(size_t, const Introduce&) {}
  void Do(size_t i, const PutRecord& a) {
    board_[a.key][nodes_[i]->config.id] = {a.value, now_ + a.ttl};
    const PeerRecord record{a.key, nodes_[i]->config.id, a.value, a.ttl};
    for (size_t j = 0; j < nodes_.size(); ++j) {
      if (j == i || !Alive(j) || nodes_[i]->island != nodes_[j]->island) continue;
      if (lose_news && lose_news(i, j)) continue;
      const auto& w = nodes_[j]->watches;
      if (std::find(w.begin(), w.end(), a.key) == w.end()) continue;
      At(delay_ * 2, [this, j, record] {
        if (Alive(j))
          Input(j, [&](Actions& out) { nodes_[j]->peer->OnRecords(now_, {record}, out); });
      });
    }
  }
  void Do(size_t i, const WatchKey& a) {
    nodes_[i]->watches.push_back(a.key);
    At(lookup_, [this, i, key = a.key] {
      if (!Alive(i)) return;
      std::vector<PeerRecord> records;
      for (const auto& [owner, entry] : board_[key])
        if (entry.second > now_ && nodes_[index_.at(owner)]->island == nodes_[i]->island)
          records.push_back({key, owner, entry.first, entry.second - now_});
      Input(i, [&](Actions& out) { nodes_[i]->peer->OnRecords(now_, records, out); });
    });
  }
  void Do(size_t, const UnwatchKey&) {}
  void Do(size_t i, const OpenBuffers& a) {
    Node& n = *nodes_[i];
    n.open[a.round] = a.instance;
    n.weights.push_back(a.weight);
    selfs_[{i, a.round}] = a.self;
    n.reducer.Open(a.round, a.instance, a.self, a.chunks, a.wire, n.regions[a.from],
                   n.regions[a.to]);
  }
  void Do(size_t i, const CloseBuffers& a) {
    nodes_[i]->reducer.Close(a.round);
    nodes_[i]->open.erase(a.round);
  }
  void Do(size_t i, Chunk& a) {
    Node& n = *nodes_[i];
    const InstanceId instance = n.open.at(a.round);
    const RoundHandle round = a.round;
    if (const auto* send = std::get_if<SendInput>(&a.action)) {
      ChunkTo(i, send->to,
              {.kind = ChunkArrived::Kind::kInput,
               .instance = instance,
               .from = {},
               .rank = selfs_.at({i, round}),
               .chunk = send->chunk,
               .assigned = send->assigned},
              n.reducer.OwnInput(round, send->chunk));
    } else if (const auto* result = std::get_if<SendResult>(&a.action)) {
      ChunkTo(i, result->to,
              {.kind = ChunkArrived::Kind::kResult,
               .instance = instance,
               .from = {},
               .rank = 0,
               .chunk = result->chunk,
               .assigned = result->assigned,
               .mask = result->mask,
               .hash = result->hash},
              *n.reducer.Result(round, result->chunk));
    } else if (const auto* fold = std::get_if<FoldChunk>(&a.action)) {
      const uint64_t hash = n.reducer.Fold(round, *fold);
      At(Microseconds(20), [this, i, round, f = *fold, hash] {
        Input(i, [&](Actions& out) {
          nodes_[i]->peer->OnFolded(now_, round, f.chunk, f.assigned, hash, out);
        });
      });
    } else if (const auto* store = std::get_if<StoreResult>(&a.action)) {
      n.reducer.StoreResult(round, store->chunk, n.result);
    } else if (const auto* drop = std::get_if<DropInputs>(&a.action)) {
      n.reducer.DropInputs(round, drop->chunk, drop->assigned);
    }
  }
  void Do(size_t i, const SpeakChunk& a) {
    const Values& from = nodes_[i]->regions[a.region];
    Bytes bytes(a.span.count * WireWidth<double>(a.wire));
    EncodeWire(a.wire, std::span<const double>(from).subspan(a.span.begin, a.span.count), bytes);
    ChunkTo(i, a.to,
            {.kind = ChunkArrived::Kind::kInput,
             .instance = a.instance,
             .from = {},
             .rank = a.rank,
             .chunk = a.chunk,
             .assigned = a.assigned},
            std::move(bytes));
  }
  void Do(size_t i, const RequestPublish& a) { nodes_[i]->publish = a.averaging; }
  void Do(size_t i, const WakeAt& a) { nodes_[i]->wake_steps = a.steps; }
  void Do(size_t i, const LetStart&) { StartTrainer(i); }
  void Do(size_t i, const Deliver& a) {
    Node& n = *nodes_[i];
    n.deliveries.push_back(a);
    n.delivered = a;
    const Values& values = n.regions[a.region];
    const Digest root = RootOf(values);
    n.serves[{a.averaging, root}] = values;
    At(Milliseconds(1), [this, i, k = a.averaging, root] { Local(i, StateHashed{k, root}); });
  }
  void Do(size_t, const ReleaseOutbox&) {}
  void Do(size_t i, const FetchState& a) {
    Node& n = *nodes_[i];
    n.fetches.push_back(a);
    At(fetch_takes, [this, i, a] {
      if (!Alive(i)) return;
      bool ok = a.donors.empty();
      for (const PeerId& donor : a.donors) {
        const auto j = IndexOf(donor);
        if (fetch_fails || !j || !Alive(*j)) continue;
        const auto at = nodes_[*j]->serves.find({a.averaging, a.root});
        if (at == nodes_[*j]->serves.end()) continue;
        nodes_[i]->regions[a.region] = at->second;
        ok = true;
      }
      if (ok) {
        nodes_[i]->x = nodes_[i]->regions[a.region];
        StartTrainer(i);
      }
      Local(i, StateFetched{a.averaging, a.root, ok});
    });
  }
  void Do(size_t i, const WriteCheckpoint& a) {
    nodes_[i]->checkpoints.push_back(a.final_model ? 1 : 0);
    nodes_[i]->checkpoint_after_stop |= nodes_[i]->stopped;
  }
  void Do(size_t i, const RaiseStop&) { nodes_[i]->stopped = true; }
  // Strategies on graphs have a world of their own: tests/contract.
  void Do(size_t, const ReserveRegions&) {}
  void Do(size_t, const RunKernel&) {}
  void Do(size_t, const MixSend&) {}
  void Do(size_t, const DeliverMix&) {}
  void Do(size_t, const TellLrScale&) {}
  void Do(size_t, const JobCounted&) {}
  void Do(size_t i, const Leave& a) {
    nodes_[i]->left.push_back(a.reason);
    nodes_[i]->exited = true;
  }

  void StartTrainer(size_t i) {
    if (nodes_[i]->running) return;
    nodes_[i]->running = true;
    At(nodes_[i]->step_time, [this, i] { Step(i); });
  }
  // A step boundary: apply, train, publish.
  void Step(size_t i) {
    Node& n = *nodes_[i];
    if (!Alive(i) || n.stopped) return;
    if (n.delivered) {
      const Values& in = n.regions[n.delivered->region];
      for (size_t e = 0; e < elements_; ++e) n.x[e] += in[e] - n.regions[Region::kOutbox][e];
      n.delivered.reset();
    }
    ++n.steps;
    for (double& v : n.x) v += n.drift;
    const double samples = n.samples_per_step * static_cast<double>(n.steps);
    if (n.publish) {
      n.regions[Region::kOutbox] = n.x;
      const uint64_t k = *std::exchange(n.publish, std::nullopt);
      Local(i, Published{k, samples, n.steps});
    }
    if (n.wake_steps != 0 && n.steps >= n.wake_steps) {
      n.wake_steps = 0;
      Local(i, Progress{n.steps, samples, 1.0, {}});
    }
    At(n.step_time, [this, i] { Step(i); });
  }

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
  std::map<uint64_t, std::pair<double, double>> seen;
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
