// Round: how one group finishes one all-reduce when members die (reference: the round protocol;
// DESIGN 4).
//
// The decision part of a member (and of the coordinator it may become), as a value without a clock:
// no deadline lives here. Suspicion and deadlines are inputs (the pacing is round_pacer.h's), so
// tests/model can copy, hash and explore it. Tensor bytes stay with the host: Round moves chunk
// numbers, masks and hashes. One input at a time; the host executes the actions of an input, in
// order, before it gives the next input. Owner: worker/core's Averaging, through the host's single
// thread. Bounds: M <= 64 ranks, 16 ballots an instance, one STATUS/PROMISE/HAVE per (peer,
// ballot). Source: round-protocol.md sections 3, 4, 7, 12; the decision part was model-checked
// there (section 10) and is again, on this very class, by tests/model.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/id.h"
#include "worker/core/round_frames.h"
#include "worker/core/witness.h"

namespace crowdsurf::worker {

// One entry of the ordered list of the group: a member, or a hole of the grid (spoken for by
// stand-ins).
struct RoundCell {
  std::optional<PeerId> member;  // nullopt: a hole
  std::set<PeerId>
      speakers;  // who may send INPUT for this rank besides the member (empty in round 0)
};

// Elements [begin, begin + count) of the flat vector, reduced by the member of rank `owner` at
// assignment 0.
struct ChunkSpan {
  uint16_t owner = 0;
  uint64_t begin = 0;
  uint32_t count = 0;
};

struct RoundSpec {
  InstanceId instance;
  int self = 0;                   // own rank; cells[self].member is this peer
  std::vector<RoundCell> cells;   // ascending by the axis' coordinate; 1..64
  std::vector<PeerId> witnesses;  // of the view; [0] breaks ties
  std::vector<ChunkSpan> chunks;
  double weight = 0;           // own, >= 0 and finite
  Digest schema;               // of the tensor table
  uint32_t window_chunks = 8;  // inputs sent ahead of the results received, per owner
  WitnessRecord promised;      // what this peer promised before it opened the round, if anything
};

// ---- actions
// -------------------------------------------------------------------------------------------------------
struct SendFrame {
  PeerId to;
  Frame frame;
};
struct SendInput {
  PeerId to;
  uint32_t chunk;
  Ballot assigned;
};  // own values, on the tensor plane
struct SendResult {
  PeerId to;
  uint32_t chunk;
  Ballot assigned;
  Mask mask;
  uint64_t hash;
};  // from the output slot
// Fold the inputs of the ranks in `mask`, ascending, with `weights`; store the (de-quantised)
// result into the output slot; answer with Round::OnFolded. Inputs of ranks outside the mask are
// dropped.
struct FoldChunk {
  uint32_t chunk;
  Ballot assigned;
  Mask mask;
  std::vector<double> weights;
};
struct StoreResult {
  uint32_t chunk;
  Ballot assigned;
};  // the result just offered by OnResult: write it to its slot
struct EmptySlot {
  uint32_t chunk;
};  // a plan made it void
struct DropInputs {
  uint32_t chunk;
  Ballot assigned;
};  // buffers of a superseded assignment
// The round is over. kApplied: the output slots hold the decided value, `value` names it.
enum class Outcome : uint8_t { kFast, kRepaired, kAdopted, kKept, kAborted, kOrphaned };
struct RoundOver {
  Outcome outcome;
  Ballot ballot;
  double weight;
  Digest root;
  Mask contributors;
};

using RoundAction = std::variant<SendFrame, SendInput, SendResult, FoldChunk, StoreResult,
                                 EmptySlot, DropInputs, RoundOver>;
using RoundActions = std::vector<RoundAction>;

enum class SuspicionCause : uint8_t { kReset, kSilence, kBye, kAbsent, kMismatch };

class Round {
 public:
  explicit Round(RoundSpec spec);  // CHECKs the spec: it is ours

  void Start(RoundActions& out);  // READY to the group

  // A control frame of this instance. `from` is authenticated by the transport. Frames that do not
  // fit (superseded, not from a member, speaker or witness, impossible ranks) change nothing but
  // refused().
  void OnFrame(const PeerId& from, const Frame& frame, RoundActions& out);

  // The host holds all bytes of `rank`'s input for (chunk, assigned), finite and of the right size.
  // `from` sent them: the member itself or a speaker of its hole. false: refused, the host drops
  // the bytes.
  bool OnInput(const PeerId& from, int rank, uint32_t chunk, Ballot assigned, RoundActions& out);
  // A bad input (NaN, Inf, wrong size): the sender is left out of that chunk.
  void OnBadInput(const PeerId& from, int rank, uint32_t chunk, Ballot assigned, RoundActions& out);
  void OnFolded(uint32_t chunk, Ballot assigned, uint64_t hash, RoundActions& out);
  // A result arrived and its hash was verified over the wire bytes; StoreResult follows if it is
  // wanted.
  void OnResult(const PeerId& from, uint32_t chunk, Ballot assigned, Mask mask, uint64_t hash,
                RoundActions& out);

  void OnSuspect(const PeerId& peer, SuspicionCause cause, RoundActions& out);  // member or witness
  void OnTrusted(const PeerId& peer, RoundActions& out);  // it was alive after all
  void OnCoordinatorLate(
      RoundActions& out);  // the ballot in hand makes no progress: next rank, or own next ballot
  void OnSitOut(RoundActions& out);  // the round's budget is spent: KEPT
  void OnLeave(RoundActions& out);   // hand over and say BYE

  bool over() const;
  bool apart() const;  // all members' READYs agree and chunks may flow
  const RoundSpec& spec() const;
  WitnessRecord Promised() const;  // to keep when the round is retired
  // Whom the round waits for now (ranks), for the failure detector and the pacer; empty when it
  // waits for nobody.
  Mask waiting_for() const;
  const std::map<std::string, uint64_t>& refused() const;  // by reason, closed set
  uint64_t Fingerprint() const;                            // of the whole state, for tests/model

 private:
  // The state is the round room's own.
};

}  // namespace crowdsurf::worker
