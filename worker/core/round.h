// Round: how one group finishes one all-reduce when members die (round-protocol.md; DESIGN 4).
//
// The decision part of a member and of the coordinator it may become, as a value without a clock:
// no deadline lives here. Suspicion and deadlines are inputs (round_pacer.h says when), so
// tests/model can copy, hash and explore it. Tensor bytes stay with the host: Round moves chunk
// numbers, masks and hashes. One input at a time; the host executes the actions of an input, in
// order, before it gives the next input. The host keeps the object after over() until the next
// snapshot closes the instance: it still answers stragglers and witnesses. Owner: worker/core's
// Averaging, through the host's single thread. Bounds: 64 ranks, 16 ballots an instance, one
// STATUS/PROMISE/HAVE per (peer, ballot). Source: round-protocol.md 3, 4, 7, 12, model-checked
// there (section 10) and, on this very class, by tests/model. Beyond it: see round_frames.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/id.h"
#include "worker/core/round_frames.h"
#include "worker/core/round_spec.h"
#include "worker/core/witness.h"

namespace crowdsurf::worker {

// ---- actions ------------------------------------------------------------------------------------
struct SendFrame {
  PeerId to;
  Frame frame;
  bool operator==(const SendFrame&) const = default;
};
struct SendInput {  // own values, on the tensor plane
  PeerId to;
  uint32_t chunk;
  Ballot assigned;
  bool operator==(const SendInput&) const = default;
};
struct SendResult {  // from the output slot, on the tensor plane
  PeerId to;
  uint32_t chunk;
  Ballot assigned;
  Mask mask;
  uint64_t hash;
  bool operator==(const SendResult&) const = default;
};
// Fold the inputs of the ranks in `mask` (own rank: own values), ascending, with weights[rank]; all
// of them zero: plain mean. Store the (de-quantised) result into the output slot and answer with
// Round::OnFolded. Inputs of other ranks for this (chunk, assigned) are dropped.
struct FoldChunk {
  uint32_t chunk;
  Ballot assigned;
  Mask mask;
  std::vector<double> weights;  // by rank of the group, zero outside of the mask
  bool operator==(const FoldChunk&) const = default;
};
struct StoreResult {  // the result just offered by OnResult: write it to its slot
  uint32_t chunk;
  Ballot assigned;
  bool operator==(const StoreResult&) const = default;
};
struct EmptySlot {  // a plan made it void
  uint32_t chunk;
  bool operator==(const EmptySlot&) const = default;
};
struct DropInputs {  // buffers of a superseded assignment; also cancels a fold in progress
  uint32_t chunk;
  Ballot assigned;
  bool operator==(const DropInputs&) const = default;
};
// The round is over for this member. kFast, kRepaired, kAdopted: the output slots hold the decided
// value (flip the flag). Else: own values are kept, the output is void.
enum class Outcome : uint8_t { kFast, kRepaired, kAdopted, kKept, kAborted, kOrphaned };
struct RoundOver {
  Outcome outcome;
  Ballot ballot;
  double weight;  // of the result: sum of the contributors' weights
  Digest root;
  Mask contributors;  // union of the chunks' masks
  Mask members;       // of the deciding ballot; all of the group when fast
  bool operator==(const RoundOver&) const = default;
};
// The branch of `ballot` is decided and this member is in it: `members` are its first view. Comes
// right after RoundOver, or alone when the value had been applied before.
struct BranchFormed {
  Ballot ballot;
  Mask members;
  Digest root;
  bool operator==(const BranchFormed&) const = default;
};
bool Applied(Outcome outcome);  // kFast, kRepaired, kAdopted

using RoundAction = std::variant<SendFrame, SendInput, SendResult, FoldChunk, StoreResult,
                                 EmptySlot, DropInputs, RoundOver, BranchFormed>;
using RoundActions = std::vector<RoundAction>;

enum class SuspicionCause : uint8_t { kReset, kSilence, kBye, kAbsent, kMismatch };

// For metrics; counts of this instance so far.
struct RoundCounts {
  std::map<std::string, uint64_t> refused;     // frames and chunks, by reason (closed set)
  std::map<SuspicionCause, uint64_t> ballots;  // opened or asked for by this member, by cause
  uint64_t ballots_late = 0;                   // ... because of OnCoordinatorLate
  uint64_t chunks_first = 0, chunks_adopted = 0, chunks_reduced_again = 0;  // of the applied value
  uint64_t divergence = 0;                                                  // page on 1
  uint64_t root_mismatch = 0;
  uint64_t bad_inputs = 0;    // NaN, Inf, wrong size
  uint64_t holes_silent = 0;  // own chunks that nobody spoke for a hole in
};

class Round {
 public:
  // kGathering: READYs are missing. kReducing: chunks flow. kHeld: HAVE(0) is out. kBallot: a
  // ballot is open. kAdopting: the decided value is known, chunks are being fetched. kOver.
  enum class Phase : uint8_t { kGathering, kReducing, kHeld, kBallot, kAdopting, kOver };

  explicit Round(RoundSpec spec);  // CHECKs the spec: it is ours

  void Start(RoundActions& out);  // READY to the group, ASK to the speakers of holes

  // A control frame of this instance. `from` is authenticated by the transport. Frames that do not
  // fit (superseded, not from a member, speaker or witness, impossible ranks) change nothing but
  // counts().refused.
  void OnFrame(const PeerId& from, const Frame& frame, RoundActions& out);

  // The host holds all bytes of `rank`'s input for (chunk, assigned), finite and of the right size.
  // `from` sent them: the member itself or one of its speakers. false: refused, the host drops the
  // bytes; true: the host keeps them until FoldChunk or DropInputs.
  bool OnInput(const PeerId& from, int rank, uint32_t chunk, Ballot assigned, RoundActions& out);
  // A bad input (NaN, Inf, wrong size): the sender is left out of that chunk.
  void OnBadInput(const PeerId& from, int rank, uint32_t chunk, Ballot assigned, RoundActions& out);
  // FoldChunk is done; `hash` is the ContentHash of the result's wire bytes.
  void OnFolded(uint32_t chunk, Ballot assigned, uint64_t hash, RoundActions& out);
  // A result arrived and its hash was verified over the wire bytes; StoreResult follows if it is
  // wanted.
  void OnResult(const PeerId& from, uint32_t chunk, Ballot assigned, Mask mask, uint64_t hash,
                RoundActions& out);

  void OnSuspect(const PeerId& peer, SuspicionCause cause, RoundActions& out);  // anybody awaited
  void OnTrusted(const PeerId& peer, RoundActions& out);  // it was alive after all
  // Whatever is awaited is late though nobody is suspected: next coordinator, or own next ballot.
  void OnCoordinatorLate(RoundActions& out);
  // The witnesses' quorum is gone (hard evidence, or the roster's TTL passed): branch (section 6).
  void OnQuorumLost(RoundActions& out);
  void OnSitOut(RoundActions& out);  // the round's budget is spent: KEPT
  void OnLeave(RoundActions& out);   // results are served: BYE, KEPT
  void OnBeat(RoundActions& out);    // BEAT to the members that may be waiting for this one

  bool over() const;
  Phase phase() const;
  Ballot branch() const;   // the branch whose OPEN was answered: the parent view is left; 0 none
  bool all_ready() const;  // all members' READYs are in and agree
  Ballot ballot() const;   // the highest answered; 0: the fast path is open
  const RoundSpec& spec() const;
  const std::optional<RoundOver>& outcome() const;
  WitnessRecord Promised() const;  // to WitnessTable::Retire when the instance is closed
  // Whom the round waits for now, ascending: members, speakers, witnesses; the failure detector
  // watches these.
  std::set<PeerId> WaitingFor() const;
  // True while an own ballot cannot get promises from a quorum of unsuspected witnesses.
  bool witness_quorum_lost() const;
  const RoundCounts& counts() const;
  uint64_t Fingerprint() const;  // of the whole state but counts, for tests/model

 private:
  // The state is the round room's own.
};

}  // namespace crowdsurf::worker
