// PeerSummary: what a peer says of itself, for GET /summary, the live view and the operator.
//
// A value made on demand by Peer::Summarize; any thread. Seconds and rates that need a wall clock
// are added by the edge.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/core/view/averaging_id.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

enum class PeerState : uint8_t { kStarting, kJoining, kTraining, kLeaving, kStopped };
const char* NameOf(PeerState state);  // "Starting", ...

// Rounds of this peer by how they ended; `branch` counts those decided by a branch alone.
struct RoundTally {
  uint64_t fast = 0, repaired = 0, adopted = 0, kept = 0, aborted = 0, orphaned = 0, branch = 0;
  uint64_t completed() const { return fast + repaired + adopted; }
  uint64_t failed() const { return kept + aborted + orphaned; }  // as counted everywhere
};

// Why the job's other members give this peer no seat.
struct SeatRefusal {
  std::string reason;
  std::string worker = {};            // who said so; empty: its name is not known
  std::optional<size_t> tensor = {};  // of another table: the first that differs, by its place
  bool operator==(const SeatRefusal&) const = default;
};

struct PeerSummary {
  PeerState state = PeerState::kStarting;
  uint64_t step = 0;
  double samples = 0;  // own, since the trainer registered
  std::optional<double> loss;
  std::map<std::string, double> metrics;
  struct ViewSummary {
    uint64_t epoch = 0;
    ViewHash hash;
    ViewHash lineage;
    size_t members = 0;
    std::vector<uint16_t> radices;
    bool branch = false;
    bool operator==(const ViewSummary&) const = default;
  };
  std::optional<ViewSummary> view;
  static constexpr size_t kMaxLineages = 8;  // more of them say no more
  std::vector<ViewHash> lineages;  // of the living that are seated, as this peer sees them, its own
                                   // among them; ascending
  std::vector<uint16_t> cell;      // coordinates; empty: not seated
  std::optional<SeatRefusal> seat_refused;
  AveragingId averaging = {};  // last committed
  double job_samples = 0;
  double job_seconds = 0;  // that the job has trained, as of the last input
  bool target_met = false;
  bool steward = false;
  RoundTally rounds;
  uint64_t averagings_delivered = 0;
  uint64_t averagings_abandoned = 0;
  uint64_t divergence = 0;  // members applied different results: must stay 0
  std::optional<double> round_seconds_p50, round_seconds_p95;
  struct SeatedMember {
    PeerId id;
    std::string worker;
    std::vector<uint16_t> cell;
  };
  std::vector<SeatedMember> members;
  bool joined_with_state = false;
  bool witness = false;           // of the view
  std::vector<std::string> lost;  // workers whose every peer is lost (Membership::Lost), ascending
};

}  // namespace crowdsurf::worker
