// Reducer: the bytes behind a round. It holds the inputs that arrived for the chunks this peer
// reduces, folds them, and writes results into the output region.
//
// The host keeps one object per agent (float) or per simulated peer (double), opens a round on
// OpenBuffers, and calls it for every RoundAction that touches bytes. Decides nothing: which
// inputs, which mask, which order of events is Round's. Single sequence. Bounds: `max_bytes` over
// the inputs of all open rounds; kMaxServed results kept ready to send per round (others are
// encoded again, to the same bytes). Source: docs/data-plane.md. Differs: the prefix is not
// folded early, all inputs of a chunk wait and are folded in one pass.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/byte_pool.h"
#include "base/bytes.h"
#include "worker/core/reduce/fold.h"
#include "worker/core/round/arrived_chunk.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/round/round_actions.h"
#include "worker/core/round/round_spec.h"
#include "worker/core/vector/coordinate_mask.h"
#include "worker/core/vector/wire_format.h"

namespace crowdsurf::worker {

struct SubnetRound;

using SharedBytes = std::shared_ptr<const Bytes>;  // sent to several peers, encoded once

// What a round reads and writes at this peer. `from` and `to` are the whole regions; they stay in
// place until Close. `mask`: the own coordinates that go into the round.
template <class Scalar>
struct RoundBuffers {
  InstanceId instance;
  int self = 0;  // own rank
  std::vector<ChunkSpan> chunks;
  WireFormat wire = WireFormat::kFloat32;
  std::span<const Scalar> from;
  std::span<Scalar> to;
  CoordinateMask mask = {};
  // IST: the chunks' coordinates. Then own values where this rank covers none are the base's, and
  // so is what is in no chunk: `to` is filled with the base first.
  std::shared_ptr<const SubnetRound> subnet = nullptr;
  std::span<const Scalar> base = {};
  // Int8, own snapshot: `from` has whole values, of which what is beyond `base`, and `rest` where
  // there is one, go in (change.h).
  bool from_base = false;
  std::span<const Scalar> rest = {};
  uint32_t dither = 0;  // of Int8 results: equal in all groups of a round
};

template <class Scalar>
class Reducer {
 public:
  static constexpr size_t kMaxServed = 16;

  // Buffers come from `pool`, and inputs go back to it.
  explicit Reducer(size_t max_bytes, std::shared_ptr<BytePool> pool = std::make_shared<BytePool>(0))
      : max_bytes_(max_bytes), pool_(std::move(pool)) {}

  // Pre: `round` is not open; chunks lie inside both regions, which do not overlap; self < number
  // of ranks.
  void Open(RoundHandle round, RoundBuffers<Scalar> buffers);
  void Close(RoundHandle round);
  std::optional<RoundHandle> Find(const InstanceId& instance) const;

  // True when an input of `bytes` may be kept: ask before the round is told of it.
  bool HasRoom(size_t bytes) const { return held_bytes_ + bytes <= max_bytes_; }
  // True when the bytes are that chunk's size, finite, and the chunk exists: ChunkArrived::finite.
  // Also a masked chunk (masked_chunk.h) of that kind. `look`: at these bytes, where one was made.
  bool IsSound(RoundHandle round, ChunkArrived::Kind kind, ChunkIndex chunk, ByteView wire,
               Float32Look look = Float32Look::kNone) const;
  // Keeps an input that the round took. A second one for the same (rank, chunk, assigned) is
  // ignored. Pre: IsSound and HasRoom.
  void KeepInput(RoundHandle round, int rank, ChunkIndex chunk, Ballot assigned, Bytes wire);
  void DropInputs(RoundHandle round, ChunkIndex chunk, Ballot assigned);

  // Own values of a chunk as they travel, masked if the own mask does not cover it: all inputs, the
  // own one too, are treated alike, at every assignment.
  Bytes OwnInput(RoundHandle round, ChunkIndex chunk) const;
  // The same where they lie, if they travel as they lie: unmasked float32 (of a Reducer<float>).
  std::optional<ByteView> OwnInPlace(RoundHandle round, ChunkIndex chunk) const;
  // Executes FoldChunk: the de-quantised result is in the output slot, the answer is the hash for
  // Round::OnFolded. A coordinate that no input covers keeps this peer's own value in it. Drops the
  // inputs of (chunk, assigned). Pre: every rank of the mask but self has an input kept.
  uint64_t Fold(RoundHandle round, const FoldChunk& fold);
  // Executes StoreResult. Pre: IsSound.
  void StoreResult(RoundHandle round, ChunkIndex chunk, ByteView wire);
  // The same of a result whose bytes are in the slot already. Pre: they travel as they lie.
  void StoredInPlace(RoundHandle round, ChunkIndex chunk);
  // The wire bytes of what is in the output slot.
  SharedBytes Result(RoundHandle round, ChunkIndex chunk);
  // The same where they lie, if they travel as they lie. Valid until the slot is written again.
  std::optional<ByteView> ResultInPlace(RoundHandle round, ChunkIndex chunk) const;

  // All results of the round lie as they travel: ResultHashes are hashes of the output's bytes.
  bool LiesAsDecided(RoundHandle round) const;

  size_t held_bytes() const { return held_bytes_; }
  size_t open_rounds() const { return rounds_.size(); }

 private:
  using ChunkKey = std::pair<ChunkIndex, Ballot>;
  struct OpenRoundBytes : RoundBuffers<Scalar> {
    std::map<ChunkKey, std::map<int, Bytes>> inputs;
    std::map<ChunkIndex, SharedBytes> served;
    std::map<ChunkIndex, ChunkExtents> kept;  // of what is in the slot: covered by nobody
  };
  const OpenRoundBytes& At(RoundHandle round) const;
  OpenRoundBytes& At(RoundHandle round);
  std::span<Scalar> Slot(OpenRoundBytes& round, ChunkIndex chunk) const;
  void FoldPlain(OpenRoundBytes& round, const FoldChunk& fold, const std::vector<ByteView>& inputs,
                 std::span<Scalar> out) const;
  Bytes Encoded(const OpenRoundBytes& round, ChunkIndex chunk,
                std::span<const Scalar> values) const;
  Bytes EncodedMean(const OpenRoundBytes& round, ChunkIndex chunk,
                    std::span<const Scalar> values) const;
  void Write(OpenRoundBytes& round, ChunkIndex chunk, ByteView wire) const;
  // What is in the slot travels as it lies.
  bool LiesAsItTravels(const OpenRoundBytes& round, ChunkIndex chunk) const;
  void Serve(OpenRoundBytes& round, ChunkIndex chunk, SharedBytes wire) const;
  void Forget(OpenRoundBytes& round, const ChunkKey& key);

  ByteView OwnValues(RoundHandle round, ChunkIndex chunk, Bytes& encoded) const;
  Bytes OwnChange(const OpenRoundBytes& round, const ChunkSpan& span) const;

  const size_t max_bytes_;
  const std::shared_ptr<BytePool> pool_;
  size_t held_bytes_ = 0;
  std::map<RoundHandle, OpenRoundBytes> rounds_;
};

extern template class Reducer<float>;
extern template class Reducer<double>;

}  // namespace crowdsurf::worker
