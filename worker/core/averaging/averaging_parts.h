// Averaging parts: where the time of this peer's averagings goes.
//
// An averaging is timed from the request for the trainer's snapshot to the mean that is given to
// the trainer. The host says when a piece of work begins and ends; threads work at the same time,
// so work overlaps. Two waits fill what no work fills. With `whole` for the time of the averaging:
//   whole = kWaitTrainer + kWaitPeers + (time in which at least one work went on)
// A kind of work that goes on in two threads counts once. So each is at most `whole`, and so is the
// sum of what one thread alone does. One averaging is timed at a time, as the core has one: a new
// request replaces it. Work beside no averaging is not counted. Pure; single sequence; instants
// never go back. O(1). Source: docs/data-plane.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/time.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

enum class AveragingPart : uint8_t {
  kWaitTrainer,  // no work, and the trainer's snapshot is not there yet
  kWaitPeers,    // no work since: others, the network, or no processor
  kSend,         // bytes to sockets, encryption included
  kReceive,      // bytes from sockets, decryption and hashes included
  kFold,         // inputs checked and folded, results hashed; steps of an outer optimizer
  kCopy,         // own values encoded, results decoded or encoded again, lent bytes kept
};
inline constexpr std::array<std::string_view, 6> kAveragingParts = {
    "wait_trainer", "wait_peers", "send", "receive", "fold", "copy"};  // by AveragingPart

// Seconds are of a clock on the wall, also those of work: a thread without a processor counts.
struct AveragingTimes {
  Duration whole;
  std::array<Duration, kAveragingParts.size()> parts;
  Duration of(AveragingPart part) const { return parts[static_cast<size_t>(part)]; }
};

class AveragingParts {
 public:
  // Pre: `work` is none of the waits; each Begin has its End. Several may go on at once.
  void Begin(Time now, AveragingPart work);
  void End(Time now, AveragingPart work);

  void OnAsked(Time now, AveragingId averaging);  // of the trainer: its snapshot
  void OnPublished(Time now, AveragingId averaging);
  // nullopt: it was not asked for, or its snapshot did not come.
  std::optional<AveragingTimes> OnDelivered(Time now, AveragingId averaging);
  void OnGivenUp() { averaging_.reset(); }  // it gives nothing

 private:
  void Advance(Time now);

  std::array<int, kAveragingParts.size()> going_on_ = {};  // pieces of work
  Time at_;                                                // as of which times_ are
  std::optional<AveragingId> averaging_;                   // that is timed
  bool published_ = false;                                 // its snapshot is there
  AveragingTimes times_;                                   // of it, so far
};

}  // namespace crowdsurf::worker
