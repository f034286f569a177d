// Speaker: a stand-in's side of one instance (docs/averaging.md).
//
// A peer that holds the value of a missing cell (a hole, or a member that was lost) tells the group
// so (SPEAK) and sends the inputs that owners ask for. It owns no part, sends no HAVE and is in no
// S. Made by worker/core's Averaging when its own round t-1 is done, for every hole it may speak
// for, or when an ASK for a lost member comes. Owners ask each chunk once, of one speaker, after
// its SPEAK. No clock, no state but a counter; single sequence.
#pragma once

#include <variant>
#include <vector>

#include "worker/core/round/chunk_index.h"
#include "worker/core/round/round_actions.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {

struct SpeakerSpec {
  InstanceId instance;
  int rank = 0;                   // whom it speaks for; cells[rank].speakers contains this peer
  std::vector<RoundCell> cells;   // of that instance
  std::vector<ChunkSpan> chunks;  // of that instance
  Stake stake;                    // what it holds: that of the group in round t-1
  Digest root;                    // ... and the root of that value
};

// Own values of chunk `chunk` as the input of `rank`, on the tensor plane.
struct SpeakInput {
  PeerId to;
  int rank = 0;
  ChunkIndex chunk = {};
  Ballot assigned = 0;
  bool operator==(const SpeakInput&) const = default;
};
using SpeakerAction = std::variant<SendFrame, SpeakInput>;
using SpeakerActions = std::vector<SpeakerAction>;

class Speaker {
 public:
  explicit Speaker(SpeakerSpec spec);

  void Start(SpeakerActions& out);  // SPEAK to all members; their ASKs pull the chunks
  // ASK is answered; everything else, and ASKs of strangers or for other ranks, is refused,
  // counted.
  void OnFrame(const PeerId& from, const Frame& frame, SpeakerActions& out);
  void Stop(SpeakerActions& out);  // the values go away: BYE to all members

  const SpeakerSpec& spec() const { return spec_; }
  uint64_t refused() const { return refused_; }

 private:
  SpeakerSpec spec_;
  uint64_t refused_ = 0;
};

}  // namespace crowdsurf::worker
