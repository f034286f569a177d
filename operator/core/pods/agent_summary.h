// AgentSummary: what an agent says of itself on GET /summary, as plain values.
//
// The operator's progress and local mode's screen and report read it. The text comes from a worker
// and is untrusted: garbage is refused, lists are bounded, missing members keep their defaults.
// Pure, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/job/training_job.h"

namespace crowdsurf::controller {

struct SummaryView {
  uint64_t epoch = 0;
  std::string hash;  // eight hex digits
  int members = 0;
  std::vector<int> radices;
  bool branch = false;
  std::string lineage;  // as `hash`; empty: not told
};

struct SummaryRounds {
  uint64_t completed = 0;
  uint64_t fast = 0;
  uint64_t repaired = 0;
  uint64_t adopted = 0;
  uint64_t kept = 0;
  uint64_t aborted = 0;
  uint64_t orphaned = 0;
  uint64_t branch = 0;

  uint64_t failed() const { return kept + aborted + orphaned; }  // docs/local-mode.md
};

// Of the averagings that an agent has finished: their number, and sums of seconds. What each part
// is: docs/data-plane.md. Parts of work overlap, so they add up to more than the whole.
inline constexpr std::array<std::string_view, 6> kAveragingPartNames = {
    "wait_trainer", "wait_peers", "send", "receive", "fold", "copy"};
struct SummaryAveragings {
  uint64_t number = 0;
  double whole = 0;
  std::array<double, kAveragingPartNames.size()> parts = {};  // by kAveragingPartNames
};

struct AgentSummary {
  std::string worker;
  std::string state;     // Starting, Joining, Training, Leaving, Stopped
  uint64_t step = 0;     // own
  uint64_t samples = 0;  // own, since start
  double samples_per_second = 0;
  std::optional<double> loss;
  std::map<std::string, double> metrics;  // what the trainer last reported
  std::optional<SummaryView> view;
  std::vector<std::string> lineages;      // of the seated peers that it sees; at most eight
  std::vector<std::string> silent_seeds;  // addresses that never answered; at most 32
  std::vector<int> cell;
  uint64_t averaging = 0;  // last committed
  uint64_t job_samples = 0;
  bool target_met = false;
  bool steward = false;
  SummaryRounds rounds;
  uint64_t hash_mismatches = 0;
  double stall_seconds = 0;  // the trainer was held by averaging
  SummaryAveragings averagings;
  double round_p50 = 0, round_p95 = 0;  // seconds
  double started_unix = 0;
  std::optional<double> first_step_unix;
  bool joined_with_state = false;
  bool trainer_hangs = false;  // it holds its connection and makes no steps
  std::string trainer_stacks;  // of one that hangs: where its threads are; empty: not known
  double seconds_since_step = 0;
  std::string tensors;      // hash of its trainer's tensor table; empty: no trainer
  uint64_t elements = 0;    // parameters in it
  std::string order;        // hash of the first batches that its trainer drew; empty: not known
  std::string trouble;      // why its training is not in the averages; empty: it is
  std::string write_error;  // the last checkpoint or model that it could not write; empty: none
  std::string waiting_for;  // of start_cause.h, as the agent says it; empty: it trains
  double waiting_seconds = 0;
};

// Why its worker does not train: the name of a row of start_cause.h; empty: it trains.
std::string WaitOf(const AgentSummary& summary);

// What an agent leaves behind when it ends, its termination message.
struct AgentWords {
  std::string reason;
  Progress progress;
  std::string waiting_for;  // as above
  double waiting_seconds = 0;
};

// nullopt for text that is none.
std::optional<AgentWords> ParseLastWords(std::string_view text);

// nullopt when `text` is not a JSON object.
std::optional<AgentSummary> ParseSummary(std::string_view text);

}  // namespace crowdsurf::controller
