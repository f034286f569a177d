// Agent summary: the JSON of GET /summary and of the termination log.
//
// From GET /summary local mode's live view, the report and the operator's progress are made, so its
// keys are a contract (docs/agent.md). Pure functions; any thread. O(members).
#pragma once

#include <optional>
#include <string>

#include "worker/core/port/peer_summary.h"
#include "worker/core/view/averaging_id.h"
#include "worker/edge/metrics/averaging_clock.h"

namespace crowdsurf::worker {

// What the edge adds to the core's own summary.
struct EdgeSummary {
  std::string job, worker;
  PeerId peer;
  double samples_per_second = 0;
  double stall_seconds = 0;
  AveragingTotals averagings;  // that this agent has timed
  std::string trouble;         // why this worker's training is not in the averages; empty: none
  std::vector<std::string> silent_seeds;  // addresses that never answered
  std::string write_error;        // checkpoint or model that could not be written last; empty: none
  std::string trainer = "none";   // TrainerPulse's word for it
  std::string trainer_stacks;     // of one that hangs, at most LinkServer::kMaxStacks bytes
  double seconds_since_step = 0;  // while there is a trainer
  std::string tensors;            // its table's hash, shortened; empty: no trainer
  uint64_t elements = 0;          // parameters that are averaged
  uint64_t order = 0;             // hash of the first batches that the trainer drew; 0: not known
  double started_unix = 0;
  std::optional<double> first_step_unix;
  std::string waiting_for;     // StartWait's word; empty: it has trained
  double waiting_seconds = 0;  // for that
};
// Of an agent that listens to nobody yet: job, worker, state and what it waits for.
std::string StartingJson(const EdgeSummary& edge);
std::string SummaryJson(const PeerSummary& core, const EdgeSummary& edge);

struct Termination {
  std::string reason;
  std::string write_error;
  AveragingId averaging = {};
  double samples = 0;
  uint64_t step = 0;
  std::optional<double> loss;
  std::string waiting_for = {};  // as of the summary
  double waiting_seconds = 0;
};
std::string TerminationJson(const Termination& termination);

}  // namespace crowdsurf::worker
