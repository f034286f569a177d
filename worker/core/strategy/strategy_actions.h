// The actions of a strategy: what its owner (averaging.h, mixing.h) does for it, in order.
//
// Buffers are named regions; ReserveRegions and RunKernel (mix.h) go to the host as they are.
// Values; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/time.h"
#include "worker/core/power/power_action.h"
#include "worker/core/subnet/unit_schema.h"
#include "worker/core/vector/coordinate_mask.h"
#include "worker/core/vector/mix.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

struct SubnetRound;

// Masked group reduce on the group of `axis`; ends with RoundDecided. `from` is the input, `to` the
// output region, which for each coordinate holds, equal to the bit at all that apply it,
//   sum of weight x from over the contributors whose mask has it / sum of their weights
// (all of those zero: their plain mean), and where no contributor's mask has it the old value: what
// lies in `from` at the member that reduces its chunk, not rounded by any wire format. So disjoint
// masks are concatenated, and what a lost member alone covered stays as it was. A mask is of one
// round: it must be whole from the second round of an averaging on, where stand-ins speak.
struct OpenRound {
  AveragingId averaging = {};
  size_t axis;
  Region from;
  Region to;
  double weight;
  CoordinateMask mask = {};  // own coordinates that go in; ends within the vector
  // IST: which coordinates the chunks have, and whose. Then what nobody covers is kInboxA's, in
  // `to` as well, and so are the values of a chunk whose coverers are all lost. Null: all of all.
  std::shared_ptr<const SubnetRound> subnet = nullptr;
};
struct SendEdge {
  PeerId peer;
  MixTag tag;
  Region region;
  EdgeSum sum;
  uint64_t sequence;  // of this peer's messages
};
// ---- actions of strategies on graphs

// A pair's model lies in `model`; `own` and `served` take an exchange each, begun here and by a
// neighbour (pair_exchange.h).
struct UsePairs {
  Region model = Region::kExtra0;
  std::vector<Region> own;
  std::vector<Region> served;
  std::vector<PeerId> neighbours;
};
struct OpenPairs {};  // the model is there: neighbours may push theirs
struct UseEdges {
  std::vector<EdgeLink> links;
  WireFormat wire;
  EdgeOrder order;
};
struct PushPair {  // an exchange with it is to begin, with the next ExchangePairs
  PeerId peer;
};
struct ExchangePairs {};  // what waits begins, and PairArrived follows for what is whole
// Exchanges come this share as often as the configuration asks for; 1: as often. The restraint is
// what this end asks of them (pair_exchange.h).
struct TellPairRate {
  double share;
  int64_t restraint = 0;
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
  AveragingId averaging = {};
  Region region;
  double weight;
};
struct AbandonAveraging {
  AveragingId averaging = {};
};  // nothing to deliver: own values stay, counted
// The trainer trains these units until it is told others; none: the whole model. `by`: names them
// in PublishedEvent.
struct TellUnits {
  AveragingId by = {};
  IndexSets sets;
};
struct SetStrategyTimer {
  Time at;
};
using StrategyAction =
    std::variant<OpenRound, SendEdge, RunKernel, DeliverResult, AbandonAveraging, SetStrategyTimer,
                 ReserveRegions, UsePairs, OpenPairs, UseEdges, PushPair, ExchangePairs,
                 TellPairRate, AskSnapshot, DeliverMixed, ReleaseSnapshot, SetLrScale, WakeAtTotals,
                 PowerAction, TellUnits>;
using StrategyActions = std::vector<StrategyAction>;

}  // namespace crowdsurf::worker
