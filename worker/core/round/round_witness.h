// A peer that is only a witness of a round: its WitnessTable's answers as frames.
//
// worker/core's Peer calls this for OPEN and ACCEPT of instances that it has no open Round for
// (which answers both roles itself: the table says kLent). No state of its own; single sequence.
#pragma once

#include <vector>

#include "worker/core/round/round_actions.h"
#include "worker/core/view/witness.h"

namespace crowdsurf::worker {

// Empty when there is nothing to say: another kind of frame, a lent register, a full table.
// ACCEPTED goes to the sender and to the learners that ACCEPT names (at most 64).
std::vector<SendFrame> AnswerAsWitness(WitnessTable& table, const PeerId& from, const Frame& frame);

}  // namespace crowdsurf::worker
