// Strategy: how peers mix. One contract for all seven (DESIGN 4 "Strategies";
// decentralized-algorithms.md 5.1).
//
// Pure: no lock, no bytes, no clock. A strategy sees events and answers with actions that name
// buffer regions; the host runs the kernels. Three transports serve all: masked group reduce
// (OpenRound), pair exchange (ExchangePair) and edge mailbox (SendEdge). One object per agent and
// per strategy epoch; single sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "worker/core/view.h"

namespace crowdsurf::worker {

// Buffers by name, each of the model's element count, float32. kOutbox is the trainer's snapshot
// (read only between publish and release); kInboxA/B alternate as results; kExtra holds a
// strategy's own copies (A2CiD2's x-tilde).
enum class Region : uint8_t { kOutbox, kInboxA, kInboxB, kExtra0, kExtra1, kExtra2, kExtra3 };

struct Needs {                 // static facts, checked at admission
  bool strict_view = false;    // renew the view at every debounced change
  bool matrix_shapes = false;  // tensors need their matrix view
  bool unit_groups = false;    // tensors need partitionable axes
  bool own_cadence = false;    // spec.averaging.interval is ignored, with a warning
  bool every_update = false;   // the trainer must pass each update's delta
  bool tree = false;           // needs a tree of the graph family
  uint8_t extra_regions = 0;   // model copies beside outbox and inboxes
};

// ---- events
// --------------------------------------------------------------------------------------------------------
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
using Event = std::variant<DueEvent, PublishedEvent, RoundDecided, PairDone, EdgeArrived, PeerDown,
                           StrategyTimer>;

// ---- actions
// -------------------------------------------------------------------------------------------------------
// Masked group reduce on the group of `axis`; ends with RoundDecided. `from` is the input, `to` the
// output region.
struct OpenRound {
  uint64_t averaging;
  size_t axis;
  Region from;
  Region to;
  double weight;
};
struct ExchangePair {
  PeerId peer;
  Region region;
};
struct SendEdge {
  PeerId peer;
  uint32_t tag;
  Region region;
};
struct RunKernel {
  uint32_t kernel;
  std::vector<Region> regions;
  std::vector<double> scalars;
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
using StrategyAction = std::variant<OpenRound, ExchangePair, SendEdge, RunKernel, DeliverResult,
                                    AbandonAveraging, SetStrategyTimer>;
using StrategyActions = std::vector<StrategyAction>;

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual Needs needs() const = 0;
  virtual void OnView(Time now, const View& view, const PeerId& self, StrategyActions& out) = 0;
  virtual void OnEvent(Time now, const Event& event, StrategyActions& out) = 0;
  // RelaySum: factor the trainer multiplies its learning rate by.
  virtual double lr_scale() const { return 1.0; }
};

// nullptr: that kind is not built; admission refuses it before this is asked.
std::unique_ptr<Strategy> MakeStrategy(StrategyKind kind, Rng rng);

}  // namespace crowdsurf::worker
