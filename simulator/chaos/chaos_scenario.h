// ChaosScenario: a whole job in virtual time and everything that will go wrong in it, and the
// report of its run.
//
// DrawChaos draws all of it from a seed ("swarm testing"). Faults end at `heal`; then everybody who
// lives must come together within `deadline`. Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/time.h"
#include "simulator/chaos/first_checkers.h"
#include "simulator/chaos/graph_job.h"
#include "simulator/chaos/mixing_checkers.h"
#include "simulator/chaos/virtual_trainer.h"
#include "simulator/engine/network.h"
#include "simulator/engine/violations.h"
#include "worker/core/subnet/unit_schema.h"
#include "worker/core/view/averaging_config.h"

namespace crowdsurf::simulator {

// Faults put into the host, to see the checkers of whole jobs turn red.
enum class ChaosPlant : uint8_t {
  kNone,
  kDeliverTwice,    // a result is handed to the trainer twice
  kEarlyPublish,    // the trainer's snapshot is replaced while it is in use
  kWrongCount,      // a delivery says one sample more
  kWrongValue,      // a bit of a delivered value flips
  kSecondView,      // a view is said to have another successor
  kNeverTogether,   // one node's frames are lost for ever
  kResendAll,       // every input is sent four times
  kCutShort,        // every message of one node loses its last byte
  kTimersPile,      // one node sets a thousand timers after every input and takes none back
  kSeatsNotUnited,  // one node is never told of seats that it does not know
  kWrongStep,       // an outer optimizer's step is off by a quarter at one node
  kOwnVelocity,     // one node's velocity is its own: half of what the others have
  kUncoveredMoves,  // a value that no sub-network has moves in one node's rounds
  kTrainsOn,        // one node's trainer begins each grant a unit too early
  kClaimsMore,      // one node says that it has trained a unit more than it has
  kInPartOnly,      // one node's snapshots miss in the first value of each mean, and count
  kNewTrainer,      // one node's trainer is replaced now and then, and the node counts as living
  kLeavesAtOnce,    // nodes that leave hide what they have trained
  kKeepsOwn,        // one node's trainer goes on from its own when it is to take others' parameters
  kWithoutOwn,      // nobody sees that one node's snapshots are in a mean
  kMovesAlone,      // one node does not move by differences that its neighbours reply with (pairs)
  kMovesTwice,      // one node moves twice by each of them
  kOtherFrames,     // one node ends its steps by other frames than those that came (PowerGossip)
  kBeyondAll,       // one node's results are beyond all models
  kMakesNaN,        // one node's trainer is given a NaN
  kSaysMore,        // one node says that its whole snapshot is there while the trainer copies it
  kOwnClock,        // no node minds the others' wall clocks
  kKeepsResults,    // one node's trainer is never given what neighbours' mixing made
};

// That start at the beginning, of a drawn job: more would be more than a round can have ranks.
inline constexpr int kMostMembers = 64;
// Steps from here on are long: between two averagings lie seconds, and how fast survivors come
// together is told in steps.
inline constexpr Duration kLongStep = Milliseconds(100);

struct ChaosScenario {
  uint64_t seed = 1;
  int members = 5;  // started at the beginning; joiners come later
  uint16_t group_size = 4;
  worker::WireFormat wire = worker::WireFormat::kFloat32;
  size_t chunk_elements = 2;
  double interval_steps = 10;
  worker::OuterOptimizer outer;  // none, unless a caller sets it
  bool one_round = false;        // rounds: One
  worker::Weighting weighting = worker::Weighting::kSamples;
  bool ist = false;               // sub-networks, instead of Moshpit
  std::optional<GraphJob> graph;  // a strategy on a graph, instead of Moshpit
  worker::UnitSchema units;       // of `trainer.elements` values, where there are any
  TrainerOptions trainer;
  bool gives_first = false;  // trainers give their first parameters; else each starts from its own
  worker::DataSpec data;     // the trainers draw leases of that; none: they draw none
  double fills = 0;          // chance that a snapshot is copied in parts, which go out meanwhile
  double speed_spread = 0;   // a trainer's step time is up to that share longer
  LinkOptions links;
  double record_loss = 0;
  Duration fold_time = Microseconds(50);
  Duration fetch_part;  // a quarter of a state takes so long; none: all of it comes at once
  Duration start_spread = Milliseconds(50);

  struct Death {
    int node = 0;
    Duration at = Duration::Infinite();  // or
    uint64_t after_actions = UINT64_MAX;
    bool silent = false;  // no reset: the others only hear nothing
  };
  struct Spell {
    Duration at;
    Duration length;
    int node = 0;
    int of = -1;
  };
  struct Partition {
    Duration at;
    Duration length;
    std::set<int> side;  // these nodes on one side, all others on the other
  };
  struct Skew {
    int node = 0;
    Duration ahead;  // of true time; negative: behind
  };
  std::vector<Death> deaths;
  Duration detection = Milliseconds(5);
  std::vector<Spell> freezes;
  std::vector<Spell> cuts;  // one way, node -> of
  std::vector<Partition> partitions;
  std::vector<Spell> suspicions;  // node hears that `of` is down; length > 0: a hard reset
  std::vector<Spell> hidden;      // node does not see the records of `of` (double steward)
  std::vector<Skew> skews;        // wall clocks that are off
  std::vector<Duration> joins;    // a new node each
  std::vector<Spell> leaves;      // node is asked to leave
  bool mild = false;  // only deaths that leave a quorum, joins, leaves: nobody may fail a round
  Duration heartbeat = Milliseconds(300);
  Duration heal = Seconds(4);
  Duration deadline = Seconds(60);  // after healing

  LogSink* log = nullptr;  // what the agents say, for a replay; outlives the run
  ChaosPlant plant = ChaosPlant::kNone;
  int planted = 0;
};

struct ChaosReport {
  Violations violations;
  uint64_t trace = 0;
  uint64_t events = 0;
  int survivors = 0;
  uint64_t delivered = 0;  // averagings, over all nodes
  uint64_t in_parts = 0;   // snapshots that the trainer had not copied whole when it told of them
  uint64_t kept = 0;       // rounds that failed for a survivor: kept + aborted + orphaned
  uint64_t repaired = 0;
  uint64_t branches = 0;
  uint64_t epochs = 0;          // of the last view
  uint64_t exact = 0;           // deliveries whose mean was recomputed from the snapshots
  uint64_t counts_checked = 0;  // deliveries whose sample count was (statements samples, twice)
  uint64_t described = 0;  // deliveries whose values are what their hashes say (statement hashes)
  uint64_t leases_committed = 0;  // samples
  uint64_t leases_retrained = 0;  // whose first result was lost with a worker
  uint64_t leases_epochs = 0;     // that are committed as a whole
  uint64_t outer_steps = 0;       // from a common base
  uint64_t outer_begins = 0;      // plain means, where a base begins
  uint64_t outer_fetched = 0;     // bases that were missed, and fetched
  uint64_t changes = 0;           // averagings of changes from the base (Int8), over all nodes
  uint64_t group_means = 0;       // taken by members, with rounds: One
  uint64_t counts = 0;            // of samples alone, over all nodes
  uint64_t subnet_rounds = 0;     // of sub-networks, over all nodes
  uint64_t subnet_kept = 0;       // values that nobody covered there
  FirstStarts first;
  MixingTotals mixing;
  uint64_t unknown_sends = 0;  // to peers that were never introduced
  Duration healed_after;       // virtual time from healing to one view and equal vectors
};

// The outer optimizer of a seed's job, where one is wanted.
worker::OuterOptimizer DrawOuter(uint64_t seed);
// Makes it a job with IST, of a small model with two hidden layers.
void DrawIst(ChaosScenario& scenario);
// Makes it a job with `rounds: One`, in groups of two or three.
void DrawOneRound(ChaosScenario& scenario);
// Makes it a job with that strategy on a graph (kGraphStrategies), some of them switched to Moshpit
// or from it. False: there is none of that name.
bool DrawGraph(std::string_view strategy, ChaosScenario& scenario);
// Makes it a job with Int8, some of them of more than one block of values.
void DrawInt8(ChaosScenario& scenario);
ChaosScenario DrawChaos(uint64_t seed, int min_members, int max_members);
// A job that draws leases and loses `departures` workers, one after the other; each is replaced. A
// part of them leaves with notice.
ChaosScenario DrawLeases(uint64_t seed, int departures);
ChaosReport RunChaos(const ChaosScenario& scenario);

}  // namespace crowdsurf::simulator
