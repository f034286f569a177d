// Strategy: how peers mix. One contract for all seven (docs/strategies.md).
//
// Pure: no lock, no bytes, no clock. A strategy sees events and answers with actions that name
// buffer regions; the host runs the kernels. Three transports serve all: masked group reduce
// (OpenRound), pair exchange (ExchangePair) and edge mailbox (SendEdge). One object per agent and
// per strategy epoch; single sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "worker/core/strategy/edge_mailbox.h"
#include "worker/core/vector/coordinate_mask.h"
#include "worker/core/vector/mix.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

struct Needs {                 // static facts, checked at admission
  bool strict_view = false;    // renew the view at every debounced change
  bool matrix_shapes = false;  // tensors need their matrix view
  bool unit_groups = false;    // tensors need partitionable axes
  bool own_cadence = false;    // spec.averaging.interval is ignored, with a warning
  bool every_update = false;   // the trainer must pass each update's delta
  bool tree = false;           // needs a tree of the graph family
  uint8_t extra_regions = 0;   // model copies beside outbox and inboxes
  bool edge_copies = false;    // and one for each edge of the graph
};

// ---- events

struct DueEvent {
  uint64_t averaging;
};  // averaging k opens: publish is being asked of the trainer
struct PublishedEvent {
  uint64_t averaging;
  double weight;
};  // the outbox holds the snapshot; weight in samples
struct RoundDecided {
  uint64_t averaging;
  size_t axis;
  bool applied;
  double weight;
};
struct PairDone {
  PeerId peer;
  bool committed;
};
struct EdgeArrived {
  PeerId peer;
  uint32_t tag;
  Region region;
};
struct PeerDown {
  PeerId peer;
};
struct StrategyTimer {};

// ---- events of strategies on graphs (mixing.h)

// The view's full average is over: mixing may begin. Results go into `inbox`; the other inbox keeps
// the average for joiners.
struct MixingOpens {
  Region inbox;
};
struct SnapshotTaken {  // the outbox holds it; the trainer's totals at it
  uint64_t step;
  double samples;
};
struct SnapshotRefused {};  // NaN in it: the trainer's values stay as they are
struct PairAgreed {
  PeerId peer;
};
struct EdgeSent {  // the message to `peer` has left
  PeerId peer;
  MixTag tag;
};
struct PaceTold {  // the trainer's totals, and how long a step and a sample take; 0: not known
  uint64_t step;
  double samples;
  double step_seconds;
  double sample_seconds;
};
using Event = std::variant<DueEvent, PublishedEvent, RoundDecided, PairDone, EdgeArrived, PeerDown,
                           StrategyTimer, MixingOpens, SnapshotTaken, SnapshotRefused, PairAgreed,
                           EdgeSent, PaceTold>;

// ---- actions

// Masked group reduce on the group of `axis`; ends with RoundDecided. `from` is the input, `to` the
// output region, which for each coordinate holds, equal to the bit at all that apply it,
//   sum of weight x from over the contributors whose mask has it / sum of their weights
// (all of those zero: their plain mean), and where no contributor's mask has it the old value: what
// lies in `from` at the member that reduces its chunk, not rounded by any wire format. So disjoint
// masks are concatenated, and what a lost member alone covered stays as it was. A mask is of one
// round: it must be whole from the second round of an averaging on, where stand-ins speak.
struct OpenRound {
  uint64_t averaging;
  size_t axis;
  Region from;
  Region to;
  double weight;
  CoordinateMask mask = {};  // own coordinates that go in; ends within the vector
};
struct ExchangePair {
  PeerId peer;
  Region region;
};
struct SendEdge {
  PeerId peer;
  MixTag tag;
  Region region;
  bool relay;         // with what the other edges of the tag hold
  uint64_t sequence;  // of this peer's messages
};
struct RunKernel {
  MixKernel kernel;
  Extent range;
  std::vector<Region> regions;
  std::vector<double> scalars;
};

// ---- actions of strategies on graphs

struct ReserveRegions {  // kExtra0 and on: the part of the vector that each holds
  std::vector<Extent> extents;
};
struct UsePairs {
  Region receive;
};
struct UseEdges {
  std::vector<EdgeLink> links;
  WireFormat wire;
  EdgeMailbox::Order order;
};
struct ProposePair {
  PeerId peer;
};
struct AskSnapshot {};  // SnapshotTaken or SnapshotRefused follows
struct DeliverMixed {   // the trainer adds region - outbox
  Region region;
};
struct ReleaseSnapshot {};  // nothing to deliver
struct SetLrScale {
  double scale;
};
struct WakeAtTotals {  // PaceTold when the trainer's totals pass either; 0: never
  uint64_t steps;
  double samples;
};
// The averaging is complete: the trainer gets (region - outbox); weight is the final weight of the
// averaging.
struct DeliverResult {
  uint64_t averaging;
  Region region;
  double weight;
};
struct AbandonAveraging {
  uint64_t averaging;
};  // nothing to deliver: own values stay, counted
struct SetStrategyTimer {
  Time at;
};
using StrategyAction =
    std::variant<OpenRound, ExchangePair, SendEdge, RunKernel, DeliverResult, AbandonAveraging,
                 SetStrategyTimer, ReserveRegions, UsePairs, UseEdges, ProposePair, AskSnapshot,
                 DeliverMixed, ReleaseSnapshot, SetLrScale, WakeAtTotals>;
using StrategyActions = std::vector<StrategyAction>;

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual Needs needs() const = 0;
  // Strategies on graphs: length of the vector, and where what edges brought is kept. Before
  // OnView; the mailbox outlives the strategy.
  virtual void SetVector(uint64_t /*elements*/, const EdgeMailbox& /*edges*/) {}
  virtual void OnView(Time now, const View& view, const PeerId& self, StrategyActions& out) = 0;
  virtual void OnEvent(Time now, const Event& event, StrategyActions& out) = 0;
  // RelaySum: factor the trainer multiplies its learning rate by.
  virtual double lr_scale() const { return 1.0; }
};

// What opens rounds for that kind: for strategies on graphs Moshpit, which makes the full average
// that each of their views begins with. nullptr: that kind is not built; admission refuses it
// before this is asked.
std::unique_ptr<Strategy> MakeStrategy(StrategyKind kind, Rng rng);
using StrategyFactory = std::function<std::unique_ptr<Strategy>(StrategyKind, Rng)>;

// Pre: IsOnGraph(config.strategy).
std::unique_ptr<Strategy> MakeGraphStrategy(const AveragingConfig& config, Rng rng);

}  // namespace crowdsurf::worker
