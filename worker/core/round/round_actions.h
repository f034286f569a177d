// What a round does, where it stands, how it ends, and what it counts (round.h).
//
// The host executes the actions of an input, in order, before it gives the next input. Values; any
// thread. Source: docs/round.md.
#pragma once

#include <cstdint>
#include <map>
#include <variant>
#include <vector>

#include "base/id.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/round/frame_refusal.h"
#include "worker/core/round/round_frames.h"

namespace crowdsurf::worker {

struct SendFrame {
  PeerId to;
  Frame frame;
  bool operator==(const SendFrame&) const = default;
};
struct SendInput {  // own values, on the tensor plane
  PeerId to;
  ChunkIndex chunk = {};
  Ballot assigned;
  bool operator==(const SendInput&) const = default;
};
struct SendResult {  // from the output slot, on the tensor plane
  PeerId to;
  ChunkIndex chunk = {};
  Ballot assigned;
  RankSet mask = {};
  uint64_t hash;
  bool operator==(const SendResult&) const = default;
};
// Fold the inputs of the ranks in `mask` (own rank: own values), ascending, with weights[rank]; all
// of them zero: plain mean. Store the (de-quantised) result into the output slot and answer with
// Round::OnFolded. Inputs of other ranks for this (chunk, assigned) are dropped.
struct FoldChunk {
  ChunkIndex chunk = {};
  Ballot assigned;
  RankSet mask = {};
  std::vector<double> weights;  // by rank of the group, zero outside of the mask
  bool operator==(const FoldChunk&) const = default;
};
struct StoreResult {  // the result just offered by OnResult: write it to its slot
  ChunkIndex chunk = {};
  Ballot assigned;
  bool operator==(const StoreResult&) const = default;
};
struct EmptySlot {  // a plan made it void
  ChunkIndex chunk = {};
  bool operator==(const EmptySlot&) const = default;
};
struct DropInputs {  // buffers of a superseded assignment; also cancels a fold in progress
  ChunkIndex chunk = {};
  Ballot assigned;
  bool operator==(const DropInputs&) const = default;
};
// The round is over for this member. kFast, kRepaired, kAdopted: the output slots hold the decided
// value (flip the flag). Else: own values are kept, the output is void. kLeft: the others have
// another base or other chunks (RoundSpec::leaves_when_behind), so it had nothing to lose there.
enum class Outcome : uint8_t { kFast, kRepaired, kAdopted, kKept, kAborted, kOrphaned, kLeft };
struct RoundOver {
  Outcome outcome;
  Ballot ballot;
  Stake stake;  // of the result: StakeOf
  Digest root;
  RankSet contributors = {};  // union of the chunks' masks
  RankSet members = {};       // of the deciding ballot; all of the group when fast
  RankSet counted = {};       // contributors whose samples and claims are in the stake
  bool operator==(const RoundOver&) const = default;
};
// The branch of `ballot` is decided and this member is in it: `members` are its first view. Comes
// right after RoundOver, or alone when the value had been applied before.
struct BranchFormed {
  Ballot ballot;
  RankSet members = {};
  Digest root;
  bool operator==(const BranchFormed&) const = default;
};
bool Applied(Outcome outcome);        // kFast, kRepaired, kAdopted
const char* NameOf(Outcome outcome);  // in metrics and logs: "fast", "repaired", ...

using RoundAction = std::variant<SendFrame, SendInput, SendResult, FoldChunk, StoreResult,
                                 EmptySlot, DropInputs, RoundOver, BranchFormed>;
using RoundActions = std::vector<RoundAction>;

// kGathering: READYs are missing. kReducing: chunks flow. kHeld: HAVE(0) is out. kBallot: a ballot
// is open. kAdopting: the decided value is known, chunks are being fetched. kOver.
enum class RoundPhase : uint8_t { kGathering, kReducing, kHeld, kBallot, kAdopting, kOver };

enum class SuspicionCause : uint8_t { kReset, kSilence, kBye, kAbsent, kMismatch };

// For metrics; counts of this instance so far.
struct RoundCounts {
  std::map<FrameRefusal, uint64_t> refused;    // frames and chunks
  std::map<SuspicionCause, uint64_t> ballots;  // opened or asked for by this member, by cause
  uint64_t ballots_late = 0;                   // ... because of OnCoordinatorLate
  uint64_t chunks_first = 0, chunks_adopted = 0, chunks_reduced_again = 0;  // of the applied value
  uint64_t divergence = 0;                                                  // page on 1
  uint64_t root_mismatch = 0;
  uint64_t bad_inputs = 0;    // NaN, Inf, wrong size
  uint64_t holes_silent = 0;  // own chunks that nobody spoke for a hole in
};

}  // namespace crowdsurf::worker
