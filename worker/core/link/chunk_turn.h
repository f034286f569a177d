// ChunkTurn: which chunk of a message leaves next, when newer messages take its place.
//
// What a chunk is made of is asked when it leaves, so a newer message to the same neighbour need
// not begin anew: it goes on with the chunk that is next, and comes round to those that left
// before. So a link that is slower than the messages come still carries every chunk in turn, and
// each chunk has the newest there is. Owner: what sends (worker/edge/tensor/mix_plane.h, or a
// simulated host); single sequence. A value.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace crowdsurf::worker {

class ChunkTurn {
 public:
  explicit ChunkTurn(uint32_t chunks) : chunks_(chunks), left_(chunks) {}

  // A newer message of `chunks` is to leave in its place.
  void Renew(uint32_t chunks) {
    if (chunks != chunks_) next_ = 0;
    chunks_ = left_ = chunks;
  }
  bool done() const { return left_ == 0; }
  uint32_t next() const { return next_; }
  // Chunk next() has left. Pre: not done.
  void Advance() {
    CHECK_GT(left_, 0u);
    next_ = next_ + 1 == chunks_ ? 0 : next_ + 1;
    --left_;
  }

 private:
  uint32_t chunks_;
  uint32_t next_ = 0;
  uint32_t left_;
};

}  // namespace crowdsurf::worker
