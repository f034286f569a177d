// RoundScenario: one round of one group, and everything that will go wrong in it.
//
// A value: tests write it by hand, DrawScenario draws it from a seed ("swarm testing": every option
// of a run is drawn, so rare combinations come up). What a run reports is a value too. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"
#include "simulator/engine/network.h"
#include "simulator/engine/violations.h"
#include "worker/core/round/round.h"
#include "worker/core/round/round_pacer.h"
#include "worker/core/view/averaging_config.h"

namespace crowdsurf::simulator {

// Faults put into the *host*, never into the code under test, to see a checker turn red; and lies
// of a member that the others must survive.
enum class Plant : uint8_t {
  kNone,
  kForgedHaves,    // the host tells a member that all others have what it has
  kSkippedStore,   // a result is taken but not written
  kFusedFold,      // a fold with other bits
  kForeignInput,   // an input's bytes are replaced before the fold
  kDeafTimer,      // deadlines never fire at one member
  kTwiceInside,    // a stand-in's values have another member's snapshot in them
  kCorruptOutput,  // a bit of the output flips after the last store
  kIgnoredMask,    // a member reduces, and sends, as if its mask were whole
  kUnmaskedAgain,  // ... only what it sends again, in a repair
  kLieNan,         // a member's inputs are NaN
  kLieWeights,     // a member tells every other one another weight
  kLieResults,     // an owner sends every other one another result
  kLieHaves,       // a member says HAVE of a root of its own
};

// Short, so that a run is a few hundred events; the ratios are those of production.
inline constexpr worker::PacerConfig kShortPacing = {.min_silence = Milliseconds(10),
                                                     .max_silence = Milliseconds(200),
                                                     .first_start = Milliseconds(20),
                                                     .min_start = Milliseconds(5),
                                                     .first_pause = Milliseconds(500),
                                                     .min_sit_out = Seconds(8)};

struct RoundScenario {
  uint64_t seed = 1;
  int members = 4;
  int holes = 0;              // ranks without a member, at the end of the group
  int speakers = 0;           // outsiders that speak for a hole: so many for each
  int outside_witnesses = 0;  // 0: the members are the witnesses
  uint32_t elements = 8;
  uint32_t chunk_elements = 2;
  worker::WireFormat wire = worker::WireFormat::kFloat32;
  bool zero_weights = false;
  bool masked = false;  // each member has a mask of its own; all hold the same outside of it
  LinkOptions links;
  struct Rate {  // of a node's links, from `at` on
    Duration at;
    int node = 0;
    double bytes_per_second = 0;
  };
  std::vector<Rate> rates;                    // empty: links take any number of bytes at once
  size_t chunk_bytes = 0;                     // that a chunk takes there, beside its values
  Duration start_spread = Microseconds(500);  // members open the round within this
  Duration fold_time = Microseconds(50);
  worker::PacerConfig pacing = kShortPacing;

  struct Death {
    int node = 0;
    uint64_t after_actions = 0;  // it executes that many actions, then no more
  };
  std::vector<Death> deaths;
  Duration detection = Milliseconds(2);  // reset seen by the others; infinite: silence only

  struct Spell {  // something that holds from `at` for `length`
    Duration at;
    Duration length;
    int node = 0;
    int of = -1;  // cuts: the other end; suspicion: whom
  };
  struct LateSnapshot {  // its trainer gives its snapshot `after` the start; the agent is alive
    int node = 0;
    Duration after;
  };
  std::vector<LateSnapshot> late_snapshots;
  uint32_t window_chunks = worker::kLeastWindowChunks;  // RoundSpec's
  uint32_t max_window_chunks = worker::kLeastWindowChunks;
  struct Window {  // what a node learns of its link to an owner
    Duration at;
    int node = 0;
    int owner = 0;
    uint32_t chunks = 0;
  };
  std::vector<Window> windows;
  std::vector<Spell> freezes;
  std::vector<Spell> cuts;          // one way, node -> of
  std::vector<Spell> suspicions;    // node is told that `of` is gone; `length` later: it is not
  Duration heal = Seconds(3);       // all faults end; suspicion is accurate from then on
  Duration deadline = Seconds(60);  // of the run
  bool strict = false;              // nobody may keep its own values (no sit-out is excusable)

  Plant plant = Plant::kNone;
  int planted = 0;  // the node that carries it
};

struct RoundReport {
  Violations violations;
  std::map<int, worker::RoundOver> over;          // by live member
  std::map<int, std::vector<Bytes>> bits;         // output slots at the end, of who applied
  std::map<int, worker::Ballot> branch;           // whose branch it is in; absent: the parent
  std::map<int, worker::Round::Phase> frozen_in;  // at its last freeze; absent: not opened yet
  std::vector<uint64_t> actions;                  // executed, by node
  std::vector<bool> alive;
  std::map<worker::FrameRefusal, uint64_t> refused;  // all nodes
  uint64_t events = 0;
  uint64_t trace = 0;  // hash of everything that happened, in order
  uint64_t result_sends = 0;
  uint64_t input_sends = 0;
  Duration length;  // virtual
};

RoundScenario DrawScenario(uint64_t seed);
RoundReport RunRound(const RoundScenario& scenario);

}  // namespace crowdsurf::simulator
