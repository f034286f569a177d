// RoundSpec: what a round is about: who, which chunks, whose witnesses.
//
// Everybody computes the same spec from the view, so nothing here is negotiated; READY compares its
// hashes. Made by worker/core's Averaging, read by Round, Speaker and the data plane. Values; any
// thread. Source: docs/round.md.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/id.h"
#include "worker/core/round/rank_set.h"
#include "worker/core/round/stake.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/register.h"
#include "worker/core/view/view_hash.h"

namespace crowdsurf::worker {

inline constexpr size_t kMaxRanks = 64;
inline constexpr size_t kMaxChunks = 1 << 20;  // of a round: 128 GiB of float32 at 128 KiB
// Inputs sent ahead of the results received, per owner: they keep a short link busy, and lie in the
// cache. Long links take more (averaging/send_window.h).
inline constexpr uint32_t kLeastWindowChunks = 8;
inline constexpr size_t kMaxLateSpeaks = 8;  // SPEAKs a rank that wait for a PLAN
// Ballots of an instance, for each rank. It bounds the ballots' numbers, which all members share.
inline constexpr int kMaxBallots = 16;
inline constexpr int kAbortBallots = 4;  // of them, the last: free plans propose ABORT

// One entry of the ordered list of the group: a member, or a hole of the grid.
struct RoundCell {
  std::optional<PeerId> member;  // nullopt: a hole
  // Who agrees with this cell on the axes still to do and may send INPUT for its rank: for a hole
  // from the start, for a member only once a PLAN left it out. Empty in round 0.
  std::set<PeerId> speakers;
  bool operator==(const RoundCell&) const = default;
};

// Elements [begin, begin + count) of the flat vector, reduced by the member of rank `owner` at
// assignment 0.
struct ChunkSpan {
  uint16_t owner = 0;
  uint64_t begin = 0;
  uint32_t count = 0;
  bool operator==(const ChunkSpan&) const = default;
};

// A chunk that not all members have values of. `coverers`: ranks whose inputs go into it; of a
// chunk that none of them is left to give, the owner's own value is the result.
struct CoveredChunk {
  ChunkSpan span;
  RankSet coverers;
  bool operator==(const CoveredChunk&) const = default;
};

struct RoundSpec {
  InstanceId instance;
  RegisterAge age;                // epoch of the view, averaging, round: for witnesses' pruning
  int self = 0;                   // own rank; cells[self].member is this peer
  std::vector<RoundCell> cells;   // ascending by the axis' coordinate; 1..64
  std::vector<PeerId> witnesses;  // of the view; [0] breaks ties
  std::vector<ChunkSpan> chunks;  // of MakeChunks (partition.h); owners are members, not holes
  // Of each chunk, the ranks whose inputs go into it (IST); empty: all of all. Then members whose
  // bases differ are not in one value.
  std::vector<RankSet> coverers;
  // The same where all give all: gradients, or changes (Int8), are of the base that the own stake
  // names. A member that gives values of no base is in no value with one that does.
  bool one_base = false;
  // Members may have come to other chunks (IST), or not to changes: of two that have, or whose
  // bases differ, the one that is behind leaves the round. Ahead is the higher count before, then
  // the lower base.
  bool leaves_when_behind = false;
  Stake stake;    // own; sound
  Digest schema;  // of the tensor table
  // Inputs sent ahead of the results received, per owner: where Round::OnWindow says nothing, and
  // the most that it may say, which is the same for all members. Pre: least <= most.
  uint32_t window_chunks = kLeastWindowChunks;
  uint32_t max_window_chunks = kLeastWindowChunks;
  WitnessRecord promised;  // WitnessTable::Lend
  bool again = false;      // opened before, and dropped untouched
  // Chunks, from the first on, of which the own input is there: Round::OnFilled tells of more.
  size_t filled = kMaxChunks;
};

// Key of ContentHash for every result of an instance: one of another round is never taken for it.
uint64_t ContentKey(const InstanceId& instance);

// What an instance is; every member computes the same id from it.
struct InstanceName {
  std::string job;
  ViewHash view;
  AveragingId averaging = {};
  uint32_t round = 0;
  uint32_t axis = 0;
  uint64_t group = 0;    // least cell index of the group
  Digest member_list;    // MemberListHash
  uint32_t attempt = 0;  // raised when the lists of seats differed
};
InstanceId IdOf(const InstanceName& name);
Digest MemberListHash(
    const std::vector<RoundCell>& cells);  // members, holes and speakers, in order
// coverers, one_base: RoundSpec's.
Digest PartsHash(const std::vector<ChunkSpan>& chunks, const std::vector<RankSet>& coverers = {},
                 bool one_base = false);

}  // namespace crowdsurf::worker
