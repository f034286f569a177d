// `crowdsurf simulate chaos`: whole jobs under faults, one seed a run, checked from outside.
//
// Owner: cli. Also runs a round's world (round_world.h) with every seed: single groups see far more
// interleavings a second than whole jobs do. Prints text or JSON (keys: seed, seeds, members,
// violations by statement, first, trace, survivors, delivered, repaired, kept, branches, events);
// on a violation the exact command that replays it. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "simulator/chaos/chaos_scenario.h"

namespace crowdsurf::simulator {

struct ChaosCommand {
  uint64_t seed = 0;  // the first
  uint64_t seeds = 1;
  int min_members = 3;  // 1..kMostMembers
  int max_members = 9;
  unsigned threads = 2;
  bool json = false;
  bool outer = false;         // every job has an outer optimizer, drawn from its seed
  bool ist = false;           // every job has IST, with a model drawn from its seed
  bool int8 = false;          // every job sends changes as Int8
  bool one_round = false;     // every job has rounds: One
  std::string strategy = {};  // every job has that one, on a graph (kGraphStrategies); empty: none
  bool first = false;         // every job starts from the first parameters of one trainer
  bool log = false;           // one seed: also what its agents say
};

struct ChaosTotals {
  uint64_t runs = 0;
  std::map<std::string, uint64_t> violations;  // by statement
  std::vector<std::string> replays;            // the first few of each, with what was broken
  std::map<std::string, uint64_t> replays_of;  // runs that broke it, by statement
  uint64_t trace = 0;                          // over all runs, in order
  uint64_t events = 0;
  uint64_t survivors = 0;
  uint64_t delivered = 0;
  uint64_t in_parts = 0;
  uint64_t exact = 0;
  uint64_t counts_checked = 0;
  uint64_t described = 0;
  uint64_t repaired = 0;
  uint64_t kept = 0;
  uint64_t branches = 0;
  uint64_t outer_steps = 0;
  uint64_t outer_begins = 0;
  uint64_t outer_fetched = 0;
  uint64_t changes = 0;
  uint64_t group_means = 0;
  uint64_t counts = 0;
  uint64_t subnet_rounds = 0;
  uint64_t subnet_kept = 0;
  FirstStarts first;
  MixingTotals mixing;
  double max_healed_seconds = 0;    // virtual; of jobs with short steps
  uint64_t slowest_seed = 0;        // whose run that is
  double max_healed_steps = 0;      // of the slowest trainer; of jobs with long steps (kLongStep)
  uint64_t slowest_steps_seed = 0;  // whose run that is
};

ChaosTotals RunSeeds(const ChaosCommand& command);
// Returns the exit code (0 nothing broken, 1 a violation, 2 options out of bounds).
int RunSimulateChaos(const ChaosCommand& command, std::string& output);

}  // namespace crowdsurf::simulator
