// The events of a strategy: what its owner (averaging.h, mixing.h) tells it.
//
// Buffers are named regions, never spans. Values; any thread.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/time.h"
#include "worker/core/round/rank_set.h"
#include "worker/core/vector/mix.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/model_age.h"

namespace crowdsurf::worker {

struct PublishedEvent {
  AveragingId averaging = {};
  double weight;
  AveragingId units = {};  // TellUnits::by of the units that it was trained on; 0: the whole model
};                         // the outbox holds the snapshot; weight in samples
struct RoundDecided {
  AveragingId averaging = {};
  size_t axis;
  bool applied;
  double weight;
  RankSet contributors = {};  // of the value, by rank of the group
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

// The view's full average is over: mixing begins. Results go into `inbox`; the other inbox keeps
// the average for joiners.
struct MixingStarted {
  Region inbox;
};
struct SnapshotTaken {  // the outbox holds it; the trainer's totals at it
  uint64_t step;
  double samples;
};
struct SnapshotRefused {};  // NaN in it: the trainer's values stay as they are
struct PairWaits {};        // a neighbour's whole model is here: ExchangePairs takes it
struct PairArrived {        // it lies there; the difference from it goes back once this returns
  Region region;
  int64_t restraint = 0;  // the greater of what both ends ask for: equal at both
};
struct PairReplied {  // the difference that the neighbour has moved by lies there, until this
                      // returns
  Region region;
  Duration took;          // from the push to the whole reply; 0: not known
  int64_t restraint = 0;  // as in PairArrived
};
struct PaceTold {  // the trainer's totals, and how long a step and a sample take; 0: not known
  uint64_t step;
  double samples;
  double step_seconds;
  double sample_seconds;
};
struct FramesHere {  // PowerGossip: the frames of the present step, of all neighbours that live
  std::vector<PeerId> peers;
  bool last = false;  // the view ends: of those whose frames have come, and no step follows
};
struct AgesCounted {  // RelaySum: the job's count `averaging` is over
  AveragingId averaging = {};
  ModelAge total;
};
// IST: kInboxA holds the base of `averaging` now, which this member was not in the round of; with
// the cells that were.
struct BaseTaken {
  AveragingId averaging = {};
  RankSet contributors = {};
};
struct BaseLost {};  // IST: whole models are averaged next
using Event = std::variant<PublishedEvent, RoundDecided, EdgeArrived, PeerDown, StrategyTimer,
                           MixingStarted, SnapshotTaken, SnapshotRefused, PairWaits, PairArrived,
                           PairReplied, PaceTold, FramesHere, AgesCounted, BaseTaken, BaseLost>;

}  // namespace crowdsurf::worker
