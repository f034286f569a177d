// Register: one decision by Paxos, as its acceptors and proposers name and remember it.
//
// A round instance is one, and so is "successor of view e". What a witness does with many of them:
// witness.h. Values; any thread. Source: docs/round.md; Paxos (Lamport 2001).
#pragma once

#include <compare>
#include <cstdint>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

using Ballot = uint16_t;  // b = k * M + rank + 1, unique per coordinator; 0 is the fast path

struct InstanceIdTag;
// Hash of (job, view hash, averaging number, round, axis, group, ordered member list, attempt).
using InstanceId = FixedId<InstanceIdTag, 16>;

struct WitnessRecord {
  Ballot promised = 0;  // highest ballot answered
  Ballot accepted = 0;  // highest ballot accepted, 0 none
  Bytes value;          // its value, as encoded by the register's owner
  bool operator==(const WitnessRecord&) const = default;
};

// The Paxos rules themselves; a refused ballot changes nothing.
bool TryPromise(WitnessRecord& record, Ballot ballot);  // true: ballot > promised, now promised
bool TryAccept(WitnessRecord& record, Ballot ballot, const Bytes& value);  // ballot >= promised

// Older registers are pruned first. Lexicographic.
struct RegisterAge {
  uint64_t epoch = 0;          // of the view the register belongs to
  AveragingId averaging = {};  // 0 for successors
  uint32_t round = 0;
  auto operator<=>(const RegisterAge&) const = default;
};

}  // namespace crowdsurf::worker
