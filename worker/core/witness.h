// Witness: the acceptor of one Paxos register, and the bounded table of the registers that a peer
// witnesses.
//
// Registers: a round instance (its decided value), and "successor of view e" (the next view). A
// witness promises ballots b > promised, accepts b >= promised, and remembers what it accepted
// (round-protocol.md 4). A peer that is member and witness of a round answers both roles from one
// ballot variable: Round holds it while it is open and hands it back (Round::Promised). Records are
// kept until the register's view is two epochs old, then "forgotten" is answered. Bound:
// kMostRecords with LRU of decided ones. Single sequence.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace crowdsurf::worker {

using Ballot = uint16_t;  // b = k * M + rank + 1, unique per coordinator; 0 is the fast path

struct WitnessRecord {
  Ballot promised = 0;  // highest ballot answered
  Ballot accepted = 0;  // highest ballot accepted, 0 none
  Bytes value;          // its value, as encoded by the register's owner
  bool operator==(const WitnessRecord&) const = default;
};

}  // namespace crowdsurf::worker
