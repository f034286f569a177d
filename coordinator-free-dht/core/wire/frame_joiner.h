// FrameJoiner: a message that came in pieces on one stream, put together again.
//
// Most messages are one piece. A long one, such as the PLAN of a large model, is several with
// ascending numbers, so that no bound of the stream below cuts it off. A piece that does not follow
// the one before ends the message: a stream that was cut lost some. Pure; one sequence with all
// joiners of a budget. Bounds: bytes of a message; bytes of all messages that are not whole yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/bytes.h"

namespace crowdsurf::dht {

inline constexpr size_t kPieceBytes = 1 << 20;  // of a piece at most

struct JoinBudget {
  size_t most = 0;  // bytes
  size_t used = 0;
};

class FrameJoiner {
 public:
  struct Piece {
    uint32_t channel = 0;
    uint32_t part = 0;  // number in its message, from 0
    bool more = false;  // another follows
    ByteView body;
  };
  enum class Outcome : uint8_t { kWaits, kWhole, kRefused };

  FrameJoiner() = default;
  ~FrameJoiner() { Drop(); }
  FrameJoiner(const FrameJoiner&) = delete;
  FrameJoiner& operator=(const FrameJoiner&) = delete;

  // kWhole: `whole` is the message. `budget` outlives the joiner, and is always the same.
  Outcome Take(const Piece& piece, size_t max_message, JoinBudget& budget, Bytes& whole) {
    if (piece.part == 0) {
      Drop();
      channel_ = piece.channel;
    } else if (piece.part != next_ || piece.channel != channel_) {
      Drop();
      return Outcome::kRefused;
    }
    budget_ = &budget;
    const size_t size = piece.body.size();
    if (bytes_.size() + size > max_message) return Refuse();
    if (piece.more && budget.used + size > budget.most) return Refuse();
    bytes_.insert(bytes_.end(), piece.body.begin(), piece.body.end());
    if (piece.more) {
      budget.used += size;
      held_ += size;
      next_ = piece.part + 1;
      return Outcome::kWaits;
    }
    whole = std::exchange(bytes_, {});
    Drop();
    return Outcome::kWhole;
  }
  void Drop() {
    if (budget_ != nullptr) budget_->used -= held_;
    held_ = 0;
    next_ = 0;
    bytes_ = {};
  }

 private:
  Outcome Refuse() {
    Drop();
    return Outcome::kRefused;
  }

  Bytes bytes_;
  JoinBudget* budget_ = nullptr;
  size_t held_ = 0;  // of the budget
  uint32_t channel_ = 0;
  uint32_t next_ = 0;  // part that must follow; 0: none is waited for
};

}  // namespace crowdsurf::dht
