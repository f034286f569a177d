// WaitingSend: the few words by which a send waits for its turn. A frame is made of them only then.
//
// Owner: SendPlane (send_plane.h), which only asks what they hold, and the plane that pushed them.
// Host thread only. Values.
#pragma once

#include <cstdint>
#include <variant>

#include "base/bytes.h"
#include "worker/core/link/chunk_turn.h"
#include "worker/core/port/actions.h"
#include "worker/core/reduce/reducer.h"

namespace crowdsurf::worker {

struct InputSend {
  RoundHandle round;
  ChunkIndex chunk = {};
  Ballot assigned;
  uint64_t generation;  // of the round's own input
};
struct ResultSend {
  RoundHandle round;
  ChunkIndex chunk = {};
  Ballot assigned;
  RankSet mask = {};
  uint64_t hash;
  uint64_t call;  // its number: in a later one another result may lie there
};
struct SpeakSend {
  SpeakChunk speak;
  uint64_t generation;  // of its region
};
struct StateSend {
  SharedBytes payload;  // made already, so it counts
};
struct MixMessage {
  MixSend send;
  ChunkTurn turn;
};
using WaitingSend = std::variant<InputSend, ResultSend, SpeakSend, StateSend, MixMessage>;

// Beside its words: what it holds while it waits.
inline size_t HeldBytes(const WaitingSend& what) {
  const auto* state = std::get_if<StateSend>(&what);
  return state != nullptr ? state->payload->size() : 0;
}

}  // namespace crowdsurf::worker
