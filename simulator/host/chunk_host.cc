#include "simulator/host/chunk_host.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "worker/core/subnet/subnet_round.h"

namespace crowdsurf::simulator {

using worker::Ballot;
using worker::ChunkIndex;
using worker::RoundHandle;

template <class Scalar>
Parcel PackSpan(const Buffer<Scalar>& region, const worker::ChunkSpan& span,
                worker::WireFormat format) {
  Parcel parcel;
  parcel.wire.resize(worker::WireBytes<Scalar>(format, span.count));
  worker::EncodeWire(format, std::span(region.values).subspan(span.begin, span.count), parcel.wire);
  // Origins travel beside the bits, element by element.
  const auto from = region.origins.begin() + static_cast<std::ptrdiff_t>(span.begin);
  parcel.origins.assign(from, from + static_cast<std::ptrdiff_t>(span.count));
  return parcel;
}

template Parcel PackSpan(const Buffer<float>&, const worker::ChunkSpan&, worker::WireFormat);
template Parcel PackSpan(const Buffer<double>&, const worker::ChunkSpan&, worker::WireFormat);

template <class Scalar>
Parcel PackElements(const Buffer<Scalar>& region, const std::vector<uint64_t>& elements,
                    worker::WireFormat format) {
  Parcel parcel;
  std::vector<Scalar> values;
  for (const uint64_t element : elements) {
    values.push_back(region.values[element]);
    parcel.origins.push_back(region.origins[element]);
  }
  parcel.wire.resize(worker::WireBytes<Scalar>(format, values.size()));
  worker::EncodeWire(format, std::span<const Scalar>(values), parcel.wire);
  return parcel;
}

template Parcel PackElements(const Buffer<float>&, const std::vector<uint64_t>&,
                             worker::WireFormat);
template Parcel PackElements(const Buffer<double>&, const std::vector<uint64_t>&,
                             worker::WireFormat);

template <class Scalar>
std::vector<uint64_t> ChunkHost<Scalar>::Opened::ElementsOf(ChunkIndex chunk) const {
  const worker::ChunkSpan& span = chunks[chunk.value()];
  std::vector<uint64_t> elements(span.count);
  if (subnet == nullptr) {
    std::iota(elements.begin(), elements.end(), span.begin);
    return elements;
  }
  // Each element of the region is its own number, and the chunk takes its own.
  std::vector<double> numbers(to->values.size()), own(span.count);
  std::iota(numbers.begin(), numbers.end(), 0.0);
  subnet->exchange.Gather(chunk.value(), std::span<const double>(numbers), std::span(own));
  std::copy(own.begin(), own.end(), elements.begin());
  return elements;
}

template <class Scalar>
void ChunkHost<Scalar>::Open(RoundHandle round, const Opened& opened) {
  worker::RoundBuffers<Scalar> buffers{opened.instance, opened.self,         opened.chunks,
                                       opened.wire,     opened.from->values, opened.to->values,
                                       opened.mask,     opened.subnet};
  if (opened.subnet != nullptr || opened.from_base) buffers.base = opened.base->values;
  buffers.from_base = opened.from_base;
  buffers.dither = opened.dither;
  if (opened.rest != nullptr) buffers.rest = opened.rest->values;
  reducer_.Open(round, std::move(buffers));
  opened_[round] = opened;
}

template <class Scalar>
void ChunkHost<Scalar>::Close(RoundHandle round) {
  reducer_.Close(round);
  opened_.erase(round);
}

template <class Scalar>
void ChunkHost<Scalar>::KeepInput(RoundHandle round, int rank, ChunkIndex chunk, Ballot assigned,
                                  const Parcel& parcel) {
  reducer_.KeepInput(round, rank, chunk, assigned, parcel.wire);
}

template <class Scalar>
Parcel ChunkHost<Scalar>::Input(RoundHandle round, ChunkIndex chunk) const {
  return {reducer_.OwnInput(round, chunk), {}};
}

template <class Scalar>
Parcel ChunkHost<Scalar>::Result(RoundHandle round, ChunkIndex chunk) {
  return {*reducer_.Result(round, chunk), {}};
}

template <class Scalar>
Parcel ChunkHost<Scalar>::Speak(const Buffer<Scalar>& region, const worker::SpeakChunk& speak) {
  return PackSpan(region, speak.span, speak.wire);
}

template <class Scalar>
uint64_t ChunkHost<Scalar>::Fold(RoundHandle round, const worker::FoldChunk& fold) {
  return reducer_.Fold(round, fold);
}

template <class Scalar>
void ChunkHost<Scalar>::Store(RoundHandle round, ChunkIndex chunk, const Parcel& parcel) {
  reducer_.StoreResult(round, chunk, parcel.wire);
}

template <class Scalar>
void ChunkHost<Scalar>::Drop(RoundHandle round, ChunkIndex chunk, Ballot assigned) {
  reducer_.DropInputs(round, chunk, assigned);
}

template class ChunkHost<float>;
template class ChunkHost<double>;

}  // namespace crowdsurf::simulator
