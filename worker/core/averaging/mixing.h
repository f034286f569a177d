// Mixing: the strategies on graphs (Gossip, A2CiD2, RelaySum, PowerGossip) in an agent.
//
// Owner: Averaging, single sequence. It makes the view's strategy, gives it the trainer's
// snapshots, runs its transports (pair_exchange.h, edge_mailbox.h, power_exchange.h) and turns its
// actions into the host's. Every view begins with one full average by Moshpit, and mixes from
// there: so joiners and changes of strategy need no rule of their own, nothing is kept across
// views, and whatever a death in mid-exchange did to the mean is over with the view. The averagings
// after the first count samples only (averaging.h). The snapshot is asked for by Averaging, which
// also asks for its own: one request is out at a time. Bounds: one strategy; its transports'.
// Source: docs/strategies.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/inputs.h"
#include "worker/core/power/power_exchange.h"
#include "worker/core/strategy/edge_mailbox.h"
#include "worker/core/strategy/pair_exchange.h"
#include "worker/core/strategy/strategy_actions.h"
#include "worker/core/strategy/strategy_events.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/model_age.h"
#include "worker/core/view/view_hash.h"

namespace crowdsurf::worker {

struct AveragingConfig;
struct PeerConfig;
struct PeerMetrics;
class Strategy;
struct View;

// Names the messages of a view: frames of other views are dropped and counted.
InstanceId MixInstanceOf(const ViewHash& view);

class Mixing {
 public:
  Mixing(const PeerConfig& config, PeerMetrics& metrics, Logger log, Rng rng);
  ~Mixing();

  // ---- the view
  // A trainer has registered: nothing is asked of it yet.
  void SetVector(uint64_t elements, const TensorViews& tensors);
  // Ends what is under way in the old view: a step of PowerGossip as far as its frames are here. A
  // strategy on a graph is made for the new one.
  void OnView(Time now, const View& view, const ViewHash& hash, Actions& out);
  // The view's full average is over. Results go into `inbox` from now on.
  void Start(Time now, Region inbox, Actions& out);
  // No view, or no trainer.
  void Stop(Actions& out);
  void Drain();  // finish what is under way, begin nothing
  bool on_graph() const { return strategy_ != nullptr; }
  bool started() const { return started_; }

  // ---- the snapshot
  std::optional<AveragingId> wanted() const;  // its number, while it has not been asked for
  void OnAsked() { ask_ = Ask::kAsked; }
  // True when it is taken; false: nobody waits for it any more.
  bool OnSnapshot(Time now, const Published& published, Actions& out);
  void OnRefused(Time now, Actions& out);

  // ---- peers
  void OnWord(Time now, const PeerId& from, const PairWord& word, Actions& out);
  void OnEdgeWord(Time now, const PeerId& from, const EdgeWord& word, Actions& out);
  // Where a chunk that arrived is to be stored; nullopt: not at all.
  std::optional<MixPlace> Place(const MixArrived& chunk) const;
  void OnChunk(Time now, const MixArrived& chunk, Actions& out);
  // What chunk `chunk` of the message to `to` is made of now; nullopt: void by now.
  std::optional<MixChunk> Describe(const PeerId& to, MixTag tag, uint64_t sequence,
                                   uint32_t chunk) const;
  void OnSent(Time now, const MixSent& sent, Actions& out);
  void OnPeerDown(Time now, const PeerId& peer, Actions& out);

  void OnProgress(Time now, const Progress& progress, Actions& out);
  void OnTimer(Time now, Actions& out);
  Time NextDeadline() const;

  // ---- the job's count
  ModelAge age() const;  // own share; none: nothing to add
  void OnCounted(Time now, AveragingId averaging, const ModelAge& total, Actions& out);

  const PairExchange::Counters& pairs() const { return pairs_.counters(); }
  const EdgeMailbox::Counters& edges() const { return edges_.counters(); }
  const PowerExchange::Counters& power() const { return power_.counters(); }
  uint64_t foreign() const { return foreign_; }
  uint64_t delivered() const { return delivered_; }
  double lr_scale() const;

 private:
  // kUnneeded: asked for in a view that has ended meanwhile.
  enum class Ask : uint8_t { kNone, kWanted, kAsked, kUnneeded, kTaken };

  void Tell(Time now, const Event& event, Actions& out);
  void Run(Time now, StrategyActions& actions, Actions& out);
  void Run(Time now, const PairExchange::Out& said, Actions& out);
  bool RunSetting(const StrategyAction& action, Actions& out);
  // Gossip in pairs, A2CiD2 (mixing_pairs.cc).
  bool RunPairs(Time now, const StrategyAction& action, Actions& out);
  void ExchangeWhole(Time now, Actions& out);
  void SayPairRate(double share);
  // PowerGossip (mixing_power.cc).
  void RunPower(Time now, const PowerAction& action, Actions& out);
  void Run(Time now, const PowerExchange::Out& said, Actions& out);
  void OnFrameChunk(Time now, const MixArrived& chunk, Actions& out);
  void OnNeighbourDown(Time now, const PeerId& peer, Actions& out);
  void OnFramesTimer(Time now, Actions& out);
  void EndFrames(Time now, Actions& out);
  void SendMessage(const SendEdge& send, Actions& out);
  void SayUnmet(const AveragingConfig& config);
  void Count();

  const PeerConfig& config_;
  PeerMetrics& metrics_;
  Logger log_;
  Rng rng_;
  uint64_t elements_ = 0;
  TensorViews tensors_;
  std::string unmet_;  // what was said of them last
  std::unique_ptr<Strategy> strategy_;
  PairExchange pairs_;
  EdgeMailbox edges_;
  PowerExchange power_;
  ViewHash view_;
  InstanceId instance_;
  WireFormat wire_ = WireFormat::kFloat32;
  uint32_t members_ = 0;
  bool started_ = false;
  bool draining_ = false;
  bool uses_pairs_ = false;
  bool uses_power_ = false;
  bool scaled_ = false;  // the trainer was told a factor other than 1
  bool slowed_ = false;  // exchanges come more rarely than asked for, as was said

  Ask ask_ = Ask::kNone;
  AveragingId asks_;  // number of the last snapshot
  Time timer_ = Time::Infinite();
  // The latest messages, by link: their numbers, and what they are made of.
  struct Leaving {
    uint64_t sequence = 0;
    Region own = Region::kOutbox;
    EdgeSum sum = EdgeSum::kOwn;
  };
  std::vector<Leaving> leaving_;

  // The trainer's pace, from its totals.
  std::optional<Progress> last_;
  Time last_at_;
  PaceTold pace_{};
  uint64_t foreign_ = 0;
  uint64_t delivered_ = 0;
};

}  // namespace crowdsurf::worker
