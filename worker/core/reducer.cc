#include "worker/core/reducer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

// The largest weight of the mask, scaled, is in [1, 2).
int ExponentOf(Mask mask, const std::vector<double>& weights) {
  double most = 0;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    if (mask >> rank & 1) most = std::max(most, weights[rank]);
  }
  return most > 0 ? std::ilogb(most) : 0;
}

}  // namespace

uint64_t ContentKey(const InstanceId& instance) { return ByteReader(instance.view()).U64(); }

template <class Scalar>
std::vector<Scalar> FoldInputs(WireFormat wire, Mask mask, const std::vector<double>& weights,
                               const std::vector<ByteView>& inputs, size_t count) {
  CHECK_NE(mask, 0u);
  CHECK_EQ(weights.size(), inputs.size());
  const int exponent = ExponentOf(mask, weights);
  double sum = 0;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    if (mask >> rank & 1) sum += std::ldexp(weights[rank], -exponent);
  }
  const bool plain = sum == 0;
  if (plain) sum = std::popcount(mask);
  std::vector<Scalar> acc(count);
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    if ((mask >> rank & 1) == 0) continue;
    const double weight = plain ? 1.0 : std::ldexp(weights[rank], -exponent);
    AddWeightedWire(wire, weight, inputs[rank], std::span<Scalar>(acc));
  }
  ScaleValues(1.0 / sum, std::span<Scalar>(acc));
  return acc;
}

template <class Scalar>
void Reducer<Scalar>::Open(RoundHandle round, const InstanceId& instance, int self,
                           std::vector<ChunkSpan> chunks, WireFormat wire,
                           std::span<const Scalar> from, std::span<Scalar> to) {
  for (const ChunkSpan& chunk : chunks) {
    CHECK_LE(chunk.begin + chunk.count, from.size());
    CHECK_LE(chunk.begin + chunk.count, to.size());
  }
  OpenRoundBytes bytes{instance, self, std::move(chunks), wire, from, to, {}, {}};
  CHECK(rounds_.try_emplace(round, std::move(bytes)).second);
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
bool Reducer<Scalar>::IsSound(RoundHandle round, uint32_t chunk, ByteView wire) const {
  const OpenRoundBytes& open = At(round);
  return chunk < open.chunks.size() &&
         WireIsSound<Scalar>(open.wire, wire, open.chunks[chunk].count);
}

template <class Scalar>
void Reducer<Scalar>::KeepInput(RoundHandle round, int rank, uint32_t chunk, Ballot assigned,
                                Bytes wire) {
  OpenRoundBytes& open = At(round);
  CHECK_LT(chunk, open.chunks.size());
  const size_t size = wire.size();
  if (open.inputs[{chunk, assigned}].try_emplace(rank, std::move(wire)).second) held_bytes_ += size;
}

template <class Scalar>
void Reducer<Scalar>::DropInputs(RoundHandle round, uint32_t chunk, Ballot assigned) {
  Forget(At(round), {chunk, assigned});
}

template <class Scalar>
Bytes Reducer<Scalar>::OwnInput(RoundHandle round, uint32_t chunk) const {
  const OpenRoundBytes& open = At(round);
  CHECK_LT(chunk, open.chunks.size());
  const ChunkSpan& span = open.chunks[chunk];
  Bytes out(span.count * WireWidth<Scalar>(open.wire));
  EncodeWire(open.wire, open.from.subspan(span.begin, span.count), out);
  return out;
}

template <class Scalar>
uint64_t Reducer<Scalar>::Fold(RoundHandle round, const FoldChunk& fold) {
  OpenRoundBytes& open = At(round);
  const auto held = open.inputs.find({fold.chunk, fold.assigned});
  Bytes own;
  std::vector<ByteView> inputs(fold.weights.size());
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    if ((fold.mask >> rank & 1) == 0) continue;
    if (static_cast<int>(rank) == open.self) {
      own = OwnInput(round, fold.chunk);
      inputs[rank] = own;
    } else {
      CHECK(held != open.inputs.end());
      inputs[rank] = held->second.at(static_cast<int>(rank));
    }
  }
  const std::span<Scalar> slot = Slot(open, fold.chunk);
  const std::vector<Scalar> mean =
      FoldInputs<Scalar>(open.wire, fold.mask, fold.weights, inputs, slot.size());
  auto wire = std::make_shared<Bytes>(slot.size() * WireWidth<Scalar>(open.wire));
  EncodeWire(open.wire, std::span<const Scalar>(mean), *wire);
  DecodeWire(open.wire, *wire, slot);
  Forget(open, {fold.chunk, fold.assigned});
  const uint64_t hash = ContentHash(*wire, ContentKey(open.instance));
  Serve(open, fold.chunk, std::move(wire));
  return hash;
}

template <class Scalar>
void Reducer<Scalar>::StoreResult(RoundHandle round, uint32_t chunk, ByteView wire) {
  OpenRoundBytes& open = At(round);
  open.served.erase(chunk);
  DecodeWire(open.wire, wire, Slot(open, chunk));
}

template <class Scalar>
SharedBytes Reducer<Scalar>::Result(RoundHandle round, uint32_t chunk) {
  OpenRoundBytes& open = At(round);
  if (const auto it = open.served.find(chunk); it != open.served.end()) return it->second;
  const std::span<const Scalar> slot = Slot(open, chunk);
  auto wire = std::make_shared<Bytes>(slot.size() * WireWidth<Scalar>(open.wire));
  EncodeWire(open.wire, slot, *wire);
  SharedBytes shared = std::move(wire);
  Serve(open, chunk, shared);
  return shared;
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
std::span<Scalar> Reducer<Scalar>::Slot(OpenRoundBytes& round, uint32_t chunk) const {
  CHECK_LT(chunk, round.chunks.size());
  return round.to.subspan(round.chunks[chunk].begin, round.chunks[chunk].count);
}

// Results are sent to the group right after they are folded, so the latest few are enough.
template <class Scalar>
void Reducer<Scalar>::Serve(OpenRoundBytes& round, uint32_t chunk, SharedBytes wire) const {
  if (round.served.size() >= kMostServed) {
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
  for (const auto& [rank, bytes] : it->second) held_bytes_ -= bytes.size();
  round.inputs.erase(it);
}

template std::vector<float> FoldInputs<float>(WireFormat, Mask, const std::vector<double>&,
                                              const std::vector<ByteView>&, size_t);
template std::vector<double> FoldInputs<double>(WireFormat, Mask, const std::vector<double>&,
                                                const std::vector<ByteView>&, size_t);
template class Reducer<float>;
template class Reducer<double>;

}  // namespace crowdsurf::worker
