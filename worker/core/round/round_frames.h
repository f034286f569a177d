// Frames: what members, stand-ins and witnesses of a round say to each other (docs/round.md).
//
// Every frame names its instance; the sender is authenticated by the transport, so no rank is
// carried. Bulk bytes (INPUT, RESULT) travel on the tensor plane; these are the small frames of the
// control plane. Codec in round_codec.h. Values; any thread. Beyond the reference: ASK (an owner
// pulls inputs that are missing, of a member or of a hole's speakers), FETCH (a member pulls
// results), REFUSED and FORGOTTEN (answers that the reference describes in words). A member that
// applied answers OPEN with DECIDED, and STATUS only to a branch. BEAT tells silence from idleness.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "base/id.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/round/rank_set.h"
#include "worker/core/round/stake.h"
#include "worker/core/view/register.h"

namespace crowdsurf::worker {

// A finished chunk. An empty mask: not there (no result has none: where nobody else contributes,
// the owner does).
struct ChunkValue {
  Ballot assigned = 0;
  RankSet mask = {};  // ranks whose inputs are in it
  uint64_t hash = 0;  // ContentHash of the wire bytes
  bool held() const { return !mask.empty(); }
  bool operator==(const ChunkValue&) const = default;
};

// What a round decides. stakes: by rank, nothing for ranks in no mask.
struct RoundValue {
  bool abort = false;  // nobody applies anything; chunks and stakes are empty
  std::vector<ChunkValue> chunks;
  std::vector<Stake> stakes;
  bool operator==(const RoundValue&) const = default;
};
RankSet ContributorsOf(const RoundValue& value);  // union of the masks
// Those whose samples count: the contributors, but of those that claim leases only the ones in
// every chunk that they cover. The claim of another one would commit samples that are in a part of
// the vector alone. coverers: RoundSpec's.
RankSet CountedOf(const RoundValue& value, const std::vector<RankSet>& coverers = {});
// Of the contributors together, ascending; samples and claims are of CountedOf.
Stake StakeOf(const RoundValue& value, const std::vector<RankSet>& coverers = {});
Digest RootOf(const RoundValue& value);  // over all of it, in order

// A value with the members that hold it: what witnesses accept.
struct HeldValue {
  RankSet members = {};
  RoundValue value;
  bool operator==(const HeldValue&) const = default;
};

// To the group at the start. `members` and `parts` let the layer above see why instances differ.
struct Ready {
  Stake stake;
  Digest schema;
  Digest members;
  Digest parts;
  bool again = false;  // its sender opened the round before, and dropped it with what it was sent
  bool operator==(const Ready&) const = default;
};
// A stand-in: I can speak for `rank` (a hole, or a member that was lost). To all members.
struct Speak {
  uint8_t rank = 0;
  Stake stake;
  Digest root;  // of what it holds; owners mix no roots for one rank
  bool operator==(const Speak&) const = default;
};
// An owner wants `rank`'s inputs: of the member itself or of a speaker. No chunks: "do you speak?",
// and of the member itself: its READY.
struct Ask {
  uint8_t rank = 0;
  Ballot assigned = 0;
  std::vector<ChunkIndex> chunks;
  bool operator==(const Ask&) const = default;
};
struct Have {
  Ballot ballot = 0;  // 0: to all; b: to its coordinator
  Digest root;
  bool operator==(const Have&) const = default;
};
// To the group and the witnesses; only the ballot's coordinator, rank (b - 1) mod M, may send it.
struct BallotOpen {
  Ballot ballot = 0;
  bool branch = false;  // section 6: no witnesses; a member that answers leaves the parent
  Ballot parent = 0;    // the branch that the coordinator is in, 0 the view itself
  RegisterAge age;
  bool operator==(const BallotOpen&) const = default;
};
struct StatusFrame {
  Ballot ballot = 0;
  bool branch = false;              // it answers an OPEN of a branch
  std::optional<Ballot> complete;   // highest ballot whose full value it still holds
  bool complete_abort = false;      // ... and that value is ABORT
  bool applied = false;             // it applied what it holds, and was asked into a branch
  std::vector<ChunkValue> held;     // by chunk
  std::vector<ChunkIndex> served;   // own chunks (assigned 0) that it has sent already, ascending
  std::map<Ballot, Digest> plans;   // seen: AssignmentHash of each
  std::map<uint8_t, Stake> stakes;  // known, by rank
  bool operator==(const StatusFrame&) const = default;
};
struct Promise {
  Ballot ballot = 0;
  Ballot accepted = 0;  // highest accepted, 0 none
  Bytes value;          // EncodeHeldValue of it
  bool operator==(const Promise&) const = default;
};
struct PlanChunk {
  Ballot assigned = 0;
  uint8_t owner = 0;     // who reduces it, when nobody holds it yet
  RankSet holders = {};  // who has the finished result: it is adopted
  ChunkValue value;      // held() when holders != 0
  bool operator==(const PlanChunk&) const = default;
};
struct Plan {
  Ballot ballot = 0;
  bool branch = false;
  bool abort = false;
  RankSet members = {};   // S
  RankSet excluded = {};  // ranks outside of S whose stake is in dispute: in no new result
  std::map<uint8_t, Stake> stakes;
  std::vector<PlanChunk> chunks;  // empty when abort
  bool operator==(const Plan&) const = default;
};
struct Accept {
  Ballot ballot = 0;
  RegisterAge age;
  Bytes value;                   // EncodeHeldValue
  std::vector<PeerId> learners;  // S: who is told of ACCEPTED
  bool operator==(const Accept&) const = default;
};
struct Accepted {
  Ballot ballot = 0;
  Digest value;  // Sha256 of the accepted bytes
  bool operator==(const Accepted&) const = default;
};
struct Decided {
  Ballot ballot = 0;
  bool branch = false;
  HeldValue held;  // members: who holds it all
  bool operator==(const Decided&) const = default;
};
struct Refused {  // a ballot older than what I promised
  Ballot promised = 0;
  bool operator==(const Refused&) const = default;
};
struct Forgotten {  // the witness pruned this register
  Ballot ballot = 0;
  bool operator==(const Forgotten&) const = default;
};
struct Fetch {  // send me these results of yours
  std::vector<ChunkIndex> chunks;
  bool operator==(const Fetch&) const = default;
};
enum class ByeReason : uint8_t { kLeaving, kSatOut, kCannotSpeak };
struct Bye {  // certain suspicion, no wait
  ByeReason reason = ByeReason::kLeaving;
  bool operator==(const Bye&) const = default;
};

struct Beat {            // I am alive and in this round, and have nothing else to say
  uint32_t missing = 0;  // results that its sender lacks
  bool operator==(const Beat&) const = default;
};

using FrameBody = std::variant<Ready, Speak, Ask, Have, BallotOpen, StatusFrame, Promise, Plan,
                               Accept, Accepted, Decided, Refused, Forgotten, Fetch, Bye, Beat>;
struct Frame {
  InstanceId instance;
  FrameBody body;
  bool operator==(const Frame&) const = default;
};

// Its sender has opened the round. A witness answers, and BYE is said, without.
bool ImpliesOpened(const FrameBody& body);

// Of the assigned ballots of a plan or value: what tells one plan from another (rule 1, "dead").
Digest AssignmentHash(const Plan& plan);
Digest AssignmentHash(const RoundValue& value);

}  // namespace crowdsurf::worker
