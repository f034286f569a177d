#include "worker/core/reduce/reducer.h"

#include <algorithm>
#include <type_traits>

#include "base/check.h"
#include "base/digest.h"
#include "worker/core/subnet/subnet_round.h"
#include "worker/core/vector/change.h"
#include "worker/core/vector/masked_chunk.h"

namespace crowdsurf::worker {

template <class Scalar>
void Reducer<Scalar>::Open(RoundHandle round, RoundBuffers<Scalar> buffers) {
  for (const ChunkSpan& chunk : buffers.chunks) {
    CHECK_LE(chunk.begin + chunk.count, buffers.from.size());
    CHECK_LE(chunk.begin + chunk.count, buffers.to.size());
    // A fold writes its slot while it reads the own values.
    CHECK(chunk.count == 0 || buffers.from.data() != buffers.to.data());
    // Every chunking has the same blocks, so values that were encoded once are so again.
    CHECK(buffers.wire != WireFormat::kInt8 || chunk.begin % kInt8Block == 0);
  }
  if (buffers.wire == WireFormat::kInt8) CHECK(buffers.mask.whole() && buffers.subnet == nullptr);
  if (buffers.from_base) {
    CHECK_EQ(buffers.base.size(), buffers.from.size());
    CHECK(buffers.rest.empty() || buffers.rest.size() == buffers.from.size());
  }
  if (buffers.subnet != nullptr) {
    CHECK_EQ(buffers.base.size(), buffers.to.size());
    CHECK(buffers.base.data() != buffers.to.data());
    std::copy(buffers.base.begin(), buffers.base.end(), buffers.to.begin());
  }
  CHECK(rounds_.try_emplace(round, OpenRoundBytes{std::move(buffers), {}, {}, {}}).second);
}

template <class Scalar>
void Reducer<Scalar>::Close(RoundHandle round) {
  const auto it = rounds_.find(round);
  if (it == rounds_.end()) return;
  while (!it->second.inputs.empty()) Forget(it->second, it->second.inputs.begin()->first);
  rounds_.erase(it);
}

template <class Scalar>
std::optional<RoundHandle> Reducer<Scalar>::Find(const InstanceId& instance) const {
  for (const auto& [handle, round] : rounds_) {
    if (round.instance == instance) return handle;
  }
  return std::nullopt;
}

template <class Scalar>
bool Reducer<Scalar>::IsSound(RoundHandle round, ChunkArrived::Kind kind, ChunkIndex chunk,
                              ByteView wire, Float32Look look) const {
  const OpenRoundBytes& open = At(round);
  if (chunk.value() >= open.chunks.size()) return false;
  const uint32_t count = open.chunks[chunk.value()].count;
  // The format's size is even, and the masked one's odd (masked_chunk.h): these are plain values.
  if (std::is_same_v<Scalar, float> && open.wire == WireFormat::kFloat32 &&
      wire.size() == WireBytes<Scalar>(open.wire, count) && look != Float32Look::kNone)
    return look == Float32Look::kFinite;
  if (!IsMasked(wire) || open.subnet != nullptr) return WireIsSound<Scalar>(open.wire, wire, count);
  const bool result = kind == ChunkArrived::Kind::kResult;
  return MaskedIsSound<Scalar>(result ? MaskedForm::kResult : MaskedForm::kInput, open.wire, wire,
                               count);
}

template <class Scalar>
void Reducer<Scalar>::KeepInput(RoundHandle round, int rank, ChunkIndex chunk, Ballot assigned,
                                Bytes wire) {
  OpenRoundBytes& open = At(round);
  CHECK_LT(chunk.value(), open.chunks.size());
  const size_t size = wire.size();
  if (open.inputs[{chunk, assigned}].try_emplace(rank, std::move(wire)).second) held_bytes_ += size;
}

template <class Scalar>
void Reducer<Scalar>::DropInputs(RoundHandle round, ChunkIndex chunk, Ballot assigned) {
  Forget(At(round), {chunk, assigned});
}

template <class Scalar>
Bytes Reducer<Scalar>::OwnInput(RoundHandle round, ChunkIndex chunk) const {
  const OpenRoundBytes& open = At(round);
  CHECK_LT(chunk.value(), open.chunks.size());
  const ChunkSpan& span = open.chunks[chunk.value()];
  if (open.subnet != nullptr) {
    const bool covers = open.subnet->Covers(static_cast<size_t>(open.self), chunk.value());
    return open.subnet->exchange.template Encode<Scalar>(open.wire, chunk.value(),
                                                         covers ? open.from : open.base);
  }
  if (open.from_base) return OwnChange(open, span);
  const auto own = open.from.subspan(span.begin, span.count);
  if (const auto covered = open.mask.Within(span.begin, span.count))
    return EncodeMaskedInput<Scalar>(open.wire, *covered, own);
  Bytes out = pool_->Take(WireBytes<Scalar>(open.wire, span.count));
  EncodeWire(open.wire, own, out);
  return out;
}

template <class Scalar>
std::optional<ByteView> Reducer<Scalar>::OwnInPlace(RoundHandle round, ChunkIndex chunk) const {
  const OpenRoundBytes& open = At(round);
  CHECK_LT(chunk.value(), open.chunks.size());
  if (open.wire != WireFormat::kFloat32 || !open.mask.whole() || open.subnet != nullptr ||
      open.from_base)
    return std::nullopt;
  const ChunkSpan& span = open.chunks[chunk.value()];
  const std::span<const Scalar> own = open.from.subspan(span.begin, span.count);
  return ByteView(reinterpret_cast<const uint8_t*>(own.data()), own.size_bytes());
}

template <class Scalar>
Bytes Reducer<Scalar>::OwnChange(const OpenRoundBytes& round, const ChunkSpan& span) const {
  const auto part = [&](std::span<const Scalar> of) {
    return of.empty() ? of : of.subspan(span.begin, span.count);
  };
  std::vector<Scalar> change(span.count);
  ChangeOf<Scalar>(part(round.from), part(round.base), part(round.rest), change);
  Bytes out = pool_->Take(WireBytes<Scalar>(round.wire, span.count));
  EncodeWire(round.wire, std::span<const Scalar>(change), out);
  return out;
}

// Where values travel as they lie, they are not copied. `encoded`: holds them otherwise.
template <class Scalar>
ByteView Reducer<Scalar>::OwnValues(RoundHandle round, ChunkIndex chunk, Bytes& encoded) const {
  if (const auto lies = OwnInPlace(round, chunk)) return *lies;
  encoded = OwnInput(round, chunk);
  return encoded;
}

template <class Scalar>
uint64_t Reducer<Scalar>::Fold(RoundHandle round, const FoldChunk& fold) {
  OpenRoundBytes& open = At(round);
  const auto held = open.inputs.find({fold.chunk, fold.assigned});
  Bytes own;
  std::vector<ByteView> inputs(fold.weights.size());
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    if (!fold.mask.Contains(rank)) continue;
    if (static_cast<int>(rank) == open.self) {
      inputs[rank] = OwnValues(round, fold.chunk, own);
    } else {
      CHECK(held != open.inputs.end());
      inputs[rank] = held->second.at(static_cast<int>(rank));
    }
  }
  // What was kept belongs to the result that this one replaces.
  open.kept.erase(fold.chunk);
  // The coordinates of a sub-network lie here and there: folded apart, and written from there.
  std::vector<Scalar> packed;
  if (open.subnet != nullptr) packed.resize(open.chunks[fold.chunk.value()].count);
  const std::span<Scalar> slot =
      open.subnet != nullptr ? std::span<Scalar>(packed) : Slot(open, fold.chunk);
  // Without a mask there are no extents to walk over: the usual case.
  const bool masked = open.subnet == nullptr &&
                      (!open.mask.whole() || std::any_of(inputs.begin(), inputs.end(), IsMasked));
  if (masked) {
    const ChunkSpan& span = open.chunks[fold.chunk.value()];
    MaskedFold<Scalar> mean = FoldMasked<Scalar>(open.wire, fold.mask, fold.weights, inputs,
                                                 open.from.subspan(span.begin, span.count));
    if (!mean.kept.empty()) open.kept[fold.chunk] = std::move(mean.kept);
    std::copy(mean.values.begin(), mean.values.end(), slot.begin());
  } else {
    FoldPlain(open, fold, inputs, slot);
  }
  pool_->Give(std::move(own));
  if (LiesAsItTravels(open, fold.chunk)) {
    open.served.erase(fold.chunk);
    Forget(open, {fold.chunk, fold.assigned});
    return ContentHash(*ResultInPlace(round, fold.chunk), ContentKey(open.instance));
  }
  SharedBytes wire = pool_->Share(EncodedMean(open, fold.chunk, slot));
  // The owner stores what travels, de-quantised, so that its bits are those of all others.
  if (masked || open.subnet != nullptr || open.wire != WireFormat::kFloat32)
    Write(open, fold.chunk, *wire);
  Forget(open, {fold.chunk, fold.assigned});
  const uint64_t hash = ContentHash(*wire, ContentKey(open.instance));
  Serve(open, fold.chunk, std::move(wire));
  return hash;
}

template <class Scalar>
void Reducer<Scalar>::FoldPlain(OpenRoundBytes& round, const FoldChunk& fold,
                                const std::vector<ByteView>& inputs, std::span<Scalar> out) const {
  // Of one member alone the mean is its value as it travelled, not times its weight and over it.
  if (round.subnet != nullptr && fold.mask.size() == 1)
    return DecodeWire(round.wire, inputs[fold.mask.first()], out);
  FoldInputs<Scalar>(round.wire, fold.mask, fold.weights, inputs, out);
}

template <class Scalar>
void Reducer<Scalar>::StoreResult(RoundHandle round, ChunkIndex chunk, ByteView wire) {
  OpenRoundBytes& open = At(round);
  // Bytes that were kept ready belong to another result.
  open.served.erase(chunk);
  Write(open, chunk, wire);
}

template <class Scalar>
void Reducer<Scalar>::StoredInPlace(RoundHandle round, ChunkIndex chunk) {
  OpenRoundBytes& open = At(round);
  open.served.erase(chunk);
  open.kept.erase(chunk);
  CHECK(LiesAsItTravels(open, chunk));
}

template <class Scalar>
SharedBytes Reducer<Scalar>::Result(RoundHandle round, ChunkIndex chunk) {
  OpenRoundBytes& open = At(round);
  if (const auto it = open.served.find(chunk); it != open.served.end()) return it->second;
  // Encoding decoded values gives the same bytes again (docs/data-plane.md).
  SharedBytes shared =
      open.subnet != nullptr
          ? std::make_shared<const Bytes>(open.subnet->exchange.template Encode<Scalar>(
                open.wire, chunk.value(), std::span<const Scalar>(open.to)))
          : pool_->Share(Encoded(open, chunk, Slot(open, chunk)));
  Serve(open, chunk, shared);
  return shared;
}

template <class Scalar>
bool Reducer<Scalar>::LiesAsItTravels(const OpenRoundBytes& round, ChunkIndex chunk) const {
  return round.wire == WireFormat::kFloat32 && round.subnet == nullptr &&
         !round.kept.contains(chunk);
}

template <class Scalar>
bool Reducer<Scalar>::LiesAsDecided(RoundHandle round) const {
  const OpenRoundBytes& open = At(round);
  return open.wire == WireFormat::kFloat32 && open.subnet == nullptr && open.kept.empty();
}

template <class Scalar>
std::optional<ByteView> Reducer<Scalar>::ResultInPlace(RoundHandle round, ChunkIndex chunk) const {
  const OpenRoundBytes& open = At(round);
  CHECK_LT(chunk.value(), open.chunks.size());
  if (!LiesAsItTravels(open, chunk)) return std::nullopt;
  const ChunkSpan& span = open.chunks[chunk.value()];
  const std::span<const Scalar> slot = open.to.subspan(span.begin, span.count);
  return ByteView(reinterpret_cast<const uint8_t*>(slot.data()), slot.size_bytes());
}

template <class Scalar>
auto Reducer<Scalar>::At(RoundHandle round) const -> const OpenRoundBytes& {
  const auto it = rounds_.find(round);
  CHECK(it != rounds_.end());
  return it->second;
}

template <class Scalar>
auto Reducer<Scalar>::At(RoundHandle round) -> OpenRoundBytes& {
  return const_cast<OpenRoundBytes&>(std::as_const(*this).At(round));
}

template <class Scalar>
std::span<Scalar> Reducer<Scalar>::Slot(OpenRoundBytes& round, ChunkIndex chunk) const {
  CHECK_LT(chunk.value(), round.chunks.size());
  return round.to.subspan(round.chunks[chunk.value()].begin, round.chunks[chunk.value()].count);
}

// What is, or is to be, in the output slot, as it travels.
template <class Scalar>
Bytes Reducer<Scalar>::Encoded(const OpenRoundBytes& round, ChunkIndex chunk,
                               std::span<const Scalar> values) const {
  if (const auto kept = round.kept.find(chunk); kept != round.kept.end())
    return EncodeMaskedResult<Scalar>(round.wire, kept->second, values);
  Bytes wire = pool_->Take(WireBytes<Scalar>(round.wire, values.size()));
  EncodeWire(round.wire, values, wire);
  return wire;
}

// What was folded, for the first time as bytes.
template <class Scalar>
Bytes Reducer<Scalar>::EncodedMean(const OpenRoundBytes& round, ChunkIndex chunk,
                                   std::span<const Scalar> values) const {
  if (round.wire != WireFormat::kInt8) return Encoded(round, chunk, values);
  Bytes wire = pool_->Take(Int8Bytes(values.size()));
  EncodeMean({round.dither, round.chunks[chunk.value()].begin}, values, wire);
  return wire;
}

template <class Scalar>
void Reducer<Scalar>::Write(OpenRoundBytes& round, ChunkIndex chunk, ByteView wire) const {
  if (round.subnet != nullptr) {
    CHECK(round.subnet->exchange.Decode(round.wire, chunk.value(), wire, round.to));
    return;
  }
  const std::span<Scalar> slot = Slot(round, chunk);
  round.kept.erase(chunk);
  if (IsMasked(wire))
    round.kept[chunk] = DecodeMaskedResult<Scalar>(round.wire, wire, slot);
  else
    DecodeWire(round.wire, wire, slot);
}

// Results are sent to the group right after they are folded, so the latest few are enough.
template <class Scalar>
void Reducer<Scalar>::Serve(OpenRoundBytes& round, ChunkIndex chunk, SharedBytes wire) const {
  if (round.served.size() >= kMaxServed) {
    const auto other =
        round.served.begin()->first == chunk ? std::prev(round.served.end()) : round.served.begin();
    round.served.erase(other);
  }
  round.served.insert_or_assign(chunk, std::move(wire));
}

template <class Scalar>
void Reducer<Scalar>::Forget(OpenRoundBytes& round, const ChunkKey& key) {
  const auto it = round.inputs.find(key);
  if (it == round.inputs.end()) return;
  for (auto& [rank, bytes] : it->second) {
    held_bytes_ -= bytes.size();
    pool_->Give(std::move(bytes));
  }
  round.inputs.erase(it);
}

template class Reducer<float>;
template class Reducer<double>;

}  // namespace crowdsurf::worker
